// Carrying out any operation: check, choose, find memory, launch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <tessera/api/context.hpp>
#include <tessera/lookup/table.hpp>
#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/environment.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/runtime/impl/announce.hpp>
#include <tessera/runtime/impl/cuda/calls.hpp>
#include <tessera/runtime/impl/environment.hpp>
#include <tessera/runtime/impl/place.hpp>
#include <tessera/runtime/impl/planned.hpp>
#include <tessera/runtime/impl/process.hpp>
#include <tessera/runtime/impl/record.hpp>
#include <tessera/runtime/impl/select.hpp>
#include <tessera/runtime/operation.hpp>
#include <tessera/runtime/tables.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

namespace {

/// The row that TESSERA_ROW names for an operation; empty if none.
std::string_view row_of_environment(std::string_view op) {
  for (const row_request& request : process_environment().rows) {
    if (request.op == op) return request.row;
  }
  return {};
}

selection_policy policy_of(const context& where) noexcept {
  return where.policy ? *where.policy : policy_in_force();
}

/// The question that a call or plan asks, but for tables and memory. The problem and the facts of
/// the place outlive it.
inquiry inquiry_of(const family& kind, const problem_view& problem, const context& where,
                   const impl::place& spot) {
  const selection_policy policy = policy_of(where);
  return {.kind = kind,
          .problem = problem,
          .demand = demand_for(kind, problem, policy),
          .instances = kind.rows(),
          .device = *spot.facts,
          .threads = spot.workers,
          .policy = policy,
          .row_of_call = where.row,
          .row_of_environment = row_of_environment(problem.op->name),
          .overlays = {where.overlays, overlay_scope::innermost(), overlay_of_environment()},
          .own_rows = where.rows,
          .tuner = policy.autotune == autotune_use::never ? nullptr : where.tuner,
          .generation = selection_generation()};
}

/// The part of a choice that is not remembered: takes the tables, asks the chain, tells about it.
[[gnu::cold, gnu::noinline]] result<selection> choose_anew(inquiry& asked, const context& where) {
  const std::shared_ptr<const lookup_tables> tables = tables_in_force();
  asked.tables = tables.get();
  if (recording()) asked.counter_of = &counter_of;
  result<selection> chosen = select_anew(asked);
  announce(asked, where.events, chosen ? &*chosen : nullptr, chosen.failure());
  return chosen;
}

/// The row for a problem becomes `chosen`. Events follow a choice that was not remembered.
status choose(const family& kind, const problem_view& problem, const context& where,
              const impl::place& spot, selection& chosen) {
  static thread_local constinit selection_memory of_thread;
  static constinit shared_memory of_process;
  inquiry asked = inquiry_of(kind, problem, where, spot);
  asked.memory = &of_thread;
  asked.process_memory = &of_process;
  if (!asked.names_a_row()) {
    if (const selection* known = recalled(asked)) {
      copy_words(&chosen, *known);
      return {};
    }
  }
  const result<selection> anew = choose_anew(asked, where);
  if (anew) chosen = *anew;
  return anew.failure();
}

/// Counts a call while a trace is recorded; else costs a comparison.
void count_call(const selection& chosen) noexcept {
  if (chosen.calls != nullptr) chosen.calls->fetch_add(1, std::memory_order_relaxed);
}

/// Makes a row ready on the current device: errors come when a plan is made, not when it runs, and
/// code that is loaded when first used is loaded now.
status make_ready(const instance& row) {
  return row.prepare != nullptr ? row.prepare() : status();
}

/// A validated call: where its tensors are, and what the kernel gets.
struct ready_call {
  const family& kind;
  const problem_view& problem;
  const void* kernel_args;
};

/// Tells a row's kernel what the policy promises, where that is not what it does anyway.
void keep_promise(const instance& row, bits_promise promise, impl::kernel_args_buffer& lowered) {
  if (promise != bits_promise::batch_invariant || row.keep_batch_invariant == nullptr) return;
  row.keep_batch_invariant(lowered.bytes.data());
}

status launch(const instance& row, const ready_call& call, int workers, std::span<std::byte> memory,
              void* stream = nullptr) {
  const launch_context where{.threads = workers,
                             .workspace = memory.data(),
                             .workspace_bytes = memory.size(),
                             .stream = stream};
  const launch_range range(row, call.problem);
  if (status done = row.launch(call.kernel_args, where); !done) return done;
  const bool side_output = call.problem.op->form == call.kind.side_form &&
                           call.problem.tensors[call.kind.side_tensor].present();
  if (!side_output) return {};
  if (row.finish == nullptr) [[unlikely]] {
    return refusal(status_code::ineligible_row,
                   {row.name, ": has no code that writes ", call.kind.side_output});
  }
  return row.finish(call.problem.tensors, call.kernel_args, where);
}

/// The same on a GPU, which is current. What failed is told with what is missing, if the row cannot
/// run there at all.
status launch_on_gpu(const instance& row, const ready_call& call, const impl::place& spot,
                     std::span<std::byte> memory) {
  status done = launch(row, call, spot.workers, memory, spot.stream);
  if (done.code() != status_code::device) return done;
  const status ready = make_ready(row);
  return failure_on(spot, row.name, ready ? done : ready);
}

/// Carries out a validated call on a GPU.
[[gnu::noinline]] status call_on_gpu(const instance& row, const ready_call& call,
                                     const context& where, const impl::place& spot) {
  if (where.checked) {
    return refusal(status_code::invalid_argument,
                   {"context.checked: is true, and a call on ", spot.device,
                    " has nobody to ask for faults; run a plan"});
  }
  const impl::cuda::current_device scope(spot.device.ordinal);
  if (!scope.entered()) return failure_on(spot, "the device", scope.entered());
  const std::size_t needed = row.workspace_bytes(call.kernel_args, spot.workers);
  impl::owned_memory owned;
  std::span<std::byte> memory = where.workspace;
  status reserved;
  if (!memory.empty()) {
    reserved = prim::check_workspace(memory, needed);
  } else if (where.allocator != nullptr) {
    reserved = owned.take(*where.allocator, spot, needed, memory);
  } else {
    reserved = owned.take_for_call(spot, needed, memory);
  }
  if (!reserved) return reserved;
  return launch_on_gpu(row, call, spot, memory);
}

/// Device tensors whose rows kernels want at multiples of 16 bytes, and which are not.
bool is_unaligned(const operation& op, const tensor_view* tensors, device_id device) noexcept {
  if (device.kind != device_kind::cuda) return false;
  for (std::size_t i = 0; i < op.form->tensors.size(); ++i) {
    if (!op.form->tensors[i].aligned_rows || !tensors[i].present()) continue;
    if (!rows_are_aligned(tensors[i])) return true;
  }
  return false;
}

/// A call has no output element to compute; `with_any_contents`: none that differs from it only in
/// the numbers that axes of outputs follow from has one.
bool is_empty(const bound_call& call, bool with_any_contents = false) noexcept {
  const auto may_grow = [&](const axis_form& axis) {
    return with_any_contents && axis.dim >= 0 &&
           call.form().dims[static_cast<std::size_t>(axis.dim)].source == dim_source::contents;
  };
  for (std::size_t i = 0; i < call.form().tensors.size(); ++i) {
    if (!call.form().tensors[i].is_output() || !call.has(i)) continue;
    const tensor_view& view = call.tensors[i];
    const shape_form& shape = call.form().shape(i, call.layout);
    bool empty = false;
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(view.rank); ++axis) {
      empty |= view.extent[axis] == 0 && !may_grow(shape.axes[axis]);
    }
    if (!empty) return false;
  }
  return true;
}

/// Validates a problem, whose strides and memory nobody looks at: `views` become row-major, outputs
/// that follow are filled in.
status lower(const problem_view& problem, bound_call& call, tensor_view* views,
             impl::kernel_args_buffer& lowered) {
  std::transform(problem.tensors, problem.tensors + problem.op->form->tensors.size(), views,
                 without_memory);
  call = {.op = problem.op, .tensors = views, .options = problem.options};
  return lower_problem(call, views, *problem.op->how, lowered.bytes.data());
}

}  // namespace

problem_view problem_of(const operation& op, const tensor_view* tensors, const void* options,
                        device_id device) noexcept {
  return {&op, tensors, options, is_unaligned(op, tensors, device)};
}

status call_operation(const family& kind, const operation& op, const tensor_view* tensors,
                      const void* options, const context& where) {
  impl::kernel_args_buffer lowered;
  bound_call call{.op = &op, .tensors = tensors, .options = options};
  device_id device;
  if (status done = lower_call(call, *op.how, lowered.bytes.data(), &device); !done) return done;
  impl::place spot;
  if (status done = find_place(device, where, spot); !done) return done;
  if (is_empty(call)) return {};
  const problem_view problem = problem_of(op, tensors, options, device);
  selection chosen;
  if (status done = choose(kind, problem, where, spot, chosen); !done) return done;
  count_call(chosen);
  const instance& row = *chosen.instance;
  if (row.keep_batch_invariant != nullptr) {
    keep_promise(row, policy_of(where).promise, lowered);
  }
  const ready_call ready{kind, problem, lowered.bytes.data()};
  if (spot.is_gpu()) return call_on_gpu(row, ready, where, spot);
  std::span<std::byte> memory;
  impl::owned_memory owned;
  const std::size_t needed = row.workspace_bytes(ready.kernel_args, spot.workers);
  if (status done = find_workspace(where, spot, needed, owned, memory); !done) return done;
  return launch(row, ready, spot.workers, memory);
}

[[gnu::cold]] result<explanation> explain_operation(const family& kind, const problem_view& problem,
                                                    const context& where,
                                                    const device_facts* device) {
  impl::kernel_args_buffer lowered;
  std::array<tensor_view, max_tensors> views;
  bound_call call;
  if (status done = lower(problem, call, views.data(), lowered); !done) return done;
  impl::place spot;
  const status known = device != nullptr ? find_place_on(*device, where, spot)
                                         : find_place(where.device, where, spot);
  if (!known) return known;
  const problem_view asked_for{problem.op, views.data(), problem.options, problem.unaligned};
  inquiry asked = inquiry_of(kind, asked_for, where, spot);
  const std::shared_ptr<const lookup_tables> tables = tables_in_force();
  asked.tables = tables.get();
  return explain(asked);
}

[[gnu::cold]] result<explanation> explain_operation(const family& kind, numbered_problem asked,
                                                    const context& where,
                                                    const device_facts* device) {
  status failure;
  asked.problem.op = operation_with(asked.operations, asked.number, failure);
  if (!failure) return failure;
  return explain_operation(kind, asked.problem, where, device);
}

[[gnu::cold]] result<owned_problem> parse_problem(std::string_view line, const family*& kind) {
  const std::string_view name = text::next_word(line);
  const found_operation known = operation_named(name);
  kind = known.kind;
  if (known.op != nullptr) return parse_problem(*known.op, line);
  return text::malformed({"starts with '", name, "', must be one of ", listed_ops()});
}

}  // namespace tessera
