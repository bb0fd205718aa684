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
#include <tessera/runtime/impl/cuda/calls.hpp>
#include <tessera/runtime/impl/overlay.hpp>
#include <tessera/runtime/impl/place.hpp>
#include <tessera/runtime/impl/profiling.hpp>
#include <tessera/runtime/impl/record.hpp>
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

/// The question that a call or plan asks, but for tables and memory. The problem and the facts of
/// the place outlive it.
template <class Family>
inquiry<Family> inquiry_of(const typename Family::problem_type& problem, const context& where,
                           const impl::place& spot) {
  const selection_policy policy = where.policy ? *where.policy : policy_in_force();
  return {.problem = problem,
          .demand = demand_for<Family>(problem, policy),
          .instances = Family::registry(),
          .device = *spot.facts,
          .threads = spot.workers,
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

/// The row for a problem. Events follow a choice that was not remembered.
template <class Family>
result<selection_of<Family>> choose(const typename Family::problem_type& problem,
                                    const context& where, const impl::place& spot) {
  static thread_local constinit selection_memory<Family> of_thread;
  static constinit shared_memory<Family> of_process;
  inquiry<Family> asked = inquiry_of<Family>(problem, where, spot);
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

/// Makes a row ready on the current device: errors come when a plan is made, not when it runs, and
/// code that is loaded when first used is loaded now.
template <class Instance>
status make_ready(const Instance& row) {
  if constexpr (requires { row.prepare; }) {
    if (row.prepare != nullptr) return row.prepare();
  }
  return {};
}

template <class Family>
status launch(const typename Family::instance_type& row,
              const typename Family::problem_type& problem, const typename Family::args_type& args,
              const typename Family::kernel_args_type& lowered, int workers,
              std::span<std::byte> memory, void* stream = nullptr) {
  const launch_context where{.threads = workers,
                             .workspace = memory.data(),
                             .workspace_bytes = memory.size(),
                             .stream = stream};
  const launch_range<Family> range(row, problem);
  if (status done = row.launch(lowered, where); !done) return done;
  return Family::finish(row, args, lowered, where);
}

/// The same on a GPU, which becomes current. What failed is told with what is missing, if the row
/// cannot run there at all.
template <class Family>
status launch_on_gpu(const typename Family::instance_type& row,
                     const typename Family::problem_type& problem,
                     const typename Family::args_type& args,
                     const typename Family::kernel_args_type& lowered, const impl::place& spot,
                     std::span<std::byte> memory) {
  status done = launch<Family>(row, problem, args, lowered, spot.workers, memory, spot.stream);
  if (done.code() != status_code::device) return done;
  const status ready = make_ready(row);
  return failure_on(spot, row.name, ready ? done : ready);
}

/// Carries out a validated call on a GPU.
template <class Family>
[[gnu::noinline]] status call_on_gpu(const typename Family::instance_type& row,
                                     const typename Family::problem_type& problem,
                                     const typename Family::args_type& args,
                                     const typename Family::kernel_args_type& lowered,
                                     const context& where, const impl::place& spot) {
  const impl::cuda::current_device scope(spot.device.ordinal);
  if (!scope.entered()) return failure_on(spot, "the device", scope.entered());
  const std::size_t needed = row.workspace_bytes(lowered, spot.workers);
  impl::allocated_memory allocated;
  impl::gpu_call_memory taken;
  std::span<std::byte> memory = where.workspace;
  status found;
  if (!memory.empty()) {
    found = prim::check_workspace(memory, needed);
  } else if (where.allocator != nullptr) {
    found = allocated.take(*where.allocator, spot, needed, memory);
  } else {
    found = taken.take(spot, needed, memory);
  }
  if (!found) return found;
  return launch_on_gpu<Family>(row, problem, args, lowered, spot, memory);
}

/// Carries out a call that has been validated: `lowered` are its arguments, `device` is where its
/// tensors lie.
template <class Family>
status call_operation(const typename Family::problem_type& problem,
                      const typename Family::args_type& args,
                      const typename Family::kernel_args_type& lowered, device_id device,
                      const context& where) {
  static_assert(executable_family<Family>);
  impl::place spot;
  if (status done = find_place(device, where, spot); !done) return done;
  if (Family::is_empty(lowered)) return {};
  const result<selection_of<Family>> chosen = choose<Family>(problem, where, spot);
  if (!chosen) return chosen.failure();
  count_call<Family>(*chosen);
  const typename Family::instance_type& row = *chosen->instance;
  if (spot.is_gpu()) return call_on_gpu<Family>(row, problem, args, lowered, where, spot);
  std::span<std::byte> memory;
  impl::allocated_memory allocated;
  const std::size_t needed = row.workspace_bytes(lowered, spot.workers);
  if (status done = find_workspace(where, spot, needed, allocated, memory); !done) return done;
  return launch<Family>(row, problem, args, lowered, spot.workers, memory);
}

/// The whole choice as data, for the device of the context or (not null) one that need not be
/// there: that has the threads that it would give a program.
template <class Family>
[[gnu::cold]] result<explanation> explain_operation(const typename Family::problem_type& problem,
                                                    const context& where,
                                                    const device_facts* device) {
  typename Family::kernel_args_type planned;
  impl::place spot;
  if (status done = Family::lower_problem(problem, planned); !done) return done;
  const status known = device != nullptr ? find_place_on(*device, where, spot)
                                         : find_place(where.device, where, spot);
  if (!known) return known;
  inquiry<Family> asked = inquiry_of<Family>(problem, where, spot);
  const std::shared_ptr<const lookup_tables> tables = tables_in_force();
  asked.tables = tables.get();
  return explain(asked);
}

}  // namespace

}  // namespace tessera
