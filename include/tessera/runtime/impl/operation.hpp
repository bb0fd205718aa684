// Carrying out an operation of any family: inquire, choose, find memory, launch.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <tessera/api/context.hpp>
#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/environment.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/runtime/impl/announce.hpp>
#include <tessera/runtime/impl/overlay.hpp>
#include <tessera/runtime/impl/profiling.hpp>
#include <tessera/runtime/impl/record.hpp>
#include <tessera/runtime/impl/threads.hpp>
#include <tessera/runtime/impl/workspace.hpp>
#include <tessera/runtime/inquiry.hpp>
#include <tessera/runtime/select.hpp>
#include <tessera/runtime/tables.hpp>

namespace tessera {

namespace {

template <class Family>
using selection_of = selection<typename Family::instance_type>;

/// The row that TESSERA_ROW names for an operation; empty if none.
std::string_view row_of_environment(std::string_view op) {
  for (const row_request& one : process_environment().rows) {
    if (one.op == op) return one.row;
  }
  return {};
}

/// The question that a call or plan asks, but for tables and memory. `problem` and `device` outlive
/// it.
template <class Family>
inquiry<Family> inquiry_of(const typename Family::problem_type& problem, const context& where,
                           int threads, const device_facts& device) {
  const selection_policy policy = where.policy ? *where.policy : policy_in_force();
  return {.problem = problem,
          .demand = demand_for<Family>(problem, policy),
          .instances = Family::registry(),
          .device = device,
          .threads = threads,
          .policy = policy,
          .row_of_call = where.row,
          .row_of_environment = row_of_environment(Family::op_of(problem)),
          .overlays = {where.overlays, overlay_scope::innermost(), overlay_of_environment()},
          .own_rows = where.rows,
          .tuner = policy.autotune == autotune_use::never ? nullptr : where.tuner,
          .generation = selection_generation()};
}

/// The part of a choice that is not remembered: takes the tables, asks the chain, tells about it.
template <class Family>
[[gnu::cold, gnu::noinline]] result<selection_of<Family>> choose_anew(inquiry<Family>& asked,
                                                                      const context& where) {
  const std::shared_ptr<const lookup_tables> tables = tables_in_force();
  asked.tables = tables.get();
  if (recording()) asked.counter_of = &counter_of<Family>;
  result<selection_of<Family>> chosen = select_anew(asked);
  announce(asked, where.events, chosen ? &*chosen : nullptr, chosen.failure());
  return chosen;
}

/// The row for a problem on this machine. Events follow a choice that was not remembered.
template <class Family>
result<selection_of<Family>> choose(const typename Family::problem_type& problem,
                                    const context& where, int threads) {
  static thread_local constinit selection_memory<Family> of_thread;
  static constinit shared_memory<Family> of_process;
  inquiry<Family> asked = inquiry_of<Family>(problem, where, threads, this_device());
  asked.memory = &of_thread;
  asked.process_memory = &of_process;
  if (!asked.names_a_row()) {
    if (const auto* known = recalled(asked)) return *known;
  }
  return choose_anew(asked, where);
}

/// Counts a call while a trace is recorded; else costs a comparison.
template <class Family>
void count_call(const selection_of<Family>& chosen) noexcept {
  if (chosen.calls != nullptr) chosen.calls->fetch_add(1, std::memory_order_relaxed);
}

template <class Family>
status launch(const typename Family::instance_type& row,
              const typename Family::problem_type& problem, const typename Family::args_type& args,
              const typename Family::kernel_args_type& lowered, int threads,
              std::span<std::byte> memory) {
  const launch_context where{
      .threads = threads, .workspace = memory.data(), .workspace_bytes = memory.size()};
  const launch_range<Family> range(row, problem);
  if (status done = row.launch(lowered, where); !done) return done;
  Family::finish(args, lowered);
  return {};
}

/// Carries out a call that has been validated: `lowered` are its arguments.
template <class Family>
status call_operation(const typename Family::problem_type& problem,
                      const typename Family::args_type& args,
                      const typename Family::kernel_args_type& lowered, const context& where) {
  static_assert(executable_family<Family>);
  int threads = 0;
  if (status done = resolve_threads(where.threads, threads); !done) return done;
  if (Family::is_empty(lowered)) return {};
  const result<selection_of<Family>> chosen = choose<Family>(problem, where, threads);
  if (!chosen) return chosen.failure();
  count_call<Family>(*chosen);
  const typename Family::instance_type& row = *chosen->instance;
  std::span<std::byte> memory;
  const std::size_t needed = row.workspace_bytes(lowered, threads);
  if (status done = find_workspace(where.workspace, needed, memory); !done) return done;
  return launch<Family>(row, problem, args, lowered, threads, memory);
}

/// The whole choice as data, for this machine or (not null) another one. A device that is not there
/// has the threads that it would give a program.
template <class Family>
[[gnu::cold]] result<explanation> explain_operation(const typename Family::problem_type& problem,
                                                    const context& where,
                                                    const device_facts* device) {
  typename Family::kernel_args_type planned;
  int threads = 0;
  if (status done = Family::lower_problem(problem, planned); !done) return done;
  const status known = device != nullptr ? resolve_threads_of(*device, where.threads, threads)
                                         : resolve_threads(where.threads, threads);
  if (!known) return known;
  inquiry<Family> asked =
      inquiry_of<Family>(problem, where, threads, device != nullptr ? *device : this_device());
  const std::shared_ptr<const lookup_tables> tables = tables_in_force();
  asked.tables = tables.get();
  return explain(asked);
}

}  // namespace

}  // namespace tessera
