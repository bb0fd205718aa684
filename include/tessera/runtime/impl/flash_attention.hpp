// The operations: validate, choose, launch.
#pragma once

#include <span>
#include <string_view>

#include <tessera/api/flash_attention.hpp>
#include <tessera/prim/common/dropout.hpp>
#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/environment.hpp>
#include <tessera/runtime/flash_fwd.hpp>
#include <tessera/runtime/impl/announce.hpp>
#include <tessera/runtime/impl/threads.hpp>
#include <tessera/runtime/impl/workspace.hpp>
#include <tessera/runtime/inquiry.hpp>
#include <tessera/runtime/registry.hpp>
#include <tessera/runtime/select.hpp>
#include <tessera/spec/flash_attention/lower.hpp>

namespace tessera {

namespace {

/// The row that TESSERA_ROW names for an operation; empty if none.
std::string_view row_of_environment(std::string_view op) {
  for (const row_request& one : process_environment().rows) {
    if (one.op == op) return one.row;
  }
  return {};
}

inquiry<flash_fwd_family> inquiry_of(const flash_problem& problem, const context& context,
                                     int threads, const device_facts& device) {
  return {.problem = problem,
          .demand = demand_of(problem),
          .instances = flash_fwd_registry(),
          .device = device,
          .threads = threads,
          .policy = context.policy,
          .row_of_call = context.row,
          .row_of_environment = row_of_environment(name_of(problem.op))};
}

/// The row for a problem on this machine. Events follow a choice that was not remembered.
result<flash_selection> choose(const flash_problem& problem, const context& context, int threads) {
  static thread_local constinit selection_memory<flash_fwd_family> memory;
  inquiry<flash_fwd_family> asked = inquiry_of(problem, context, threads, this_device());
  asked.memory = &memory;
  result<flash_selection> chosen = select(asked);
  if (!chosen || !chosen->remembered) announce(asked, context.events, chosen.failure());
  return chosen;
}

/// True if the call has no output element to compute.
bool is_empty(const flash_kernel_args& args) noexcept {
  return args.q_len == 0 || (args.cu_seqlens_q == nullptr && args.batch == 0);
}

status launch(const flash_instance& row, const flash_attention_args& args,
              const flash_kernel_args& lowered, int threads, std::span<std::byte> memory) {
  const launch_context where{
      .threads = threads, .workspace = memory.data(), .workspace_bytes = memory.size()};
  if (status done = row.launch(lowered, where); !done) return done;
  if (args.dropout_mask.present()) prim::write_dropout_mask(args.dropout_mask, lowered);
  return {};
}

status run(flash_op op, const flash_attention_args& args, const flash_attention_options& options,
           const context& context) {
  flash_kernel_args lowered;
  int threads = 0;
  if (status done = lower(op, args, options, lowered); !done) return done;
  if (status done = resolve_threads(context.threads, threads); !done) return done;
  if (is_empty(lowered)) return {};
  const result<flash_selection> chosen = choose(problem_of(args, options, op), context, threads);
  if (!chosen) return chosen.failure();
  const flash_instance& row = *chosen->instance;
  std::span<std::byte> memory;
  const std::size_t needed = row.workspace_bytes(lowered, threads);
  if (status done = find_workspace(context.workspace, needed, memory); !done) return done;
  return launch(row, args, lowered, threads, memory);
}

}  // namespace

status flash_attention(const flash_attention_args& args, const flash_attention_options& options,
                       const context& context) {
  return run(flash_op::flash_attention, args, options, context);
}

status attention(const flash_attention_args& args, const flash_attention_options& options,
                 const context& context) {
  return run(flash_op::attention, args, options, context);
}

status scaled_dot_product_attention(const flash_attention_args& args,
                                    const flash_attention_options& options,
                                    const context& context) {
  return run(flash_op::scaled_dot_product_attention, args, options, context);
}

}  // namespace tessera
