// Plans of any operation: a selection with its launch arguments and its memory.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/api/plan.hpp>
#include <tessera/prim/common/workspace.hpp>
#include <tessera/runtime/impl/cuda/calls.hpp>
#include <tessera/runtime/impl/fault_counters.hpp>
#include <tessera/runtime/impl/operation.hpp>
#include <tessera/runtime/impl/place.hpp>
#include <tessera/runtime/impl/planned.hpp>
#include <tessera/spec/copy.hpp>

namespace tessera {

struct operation_plan::state {
  explicit state(const family& of, const problem_view& from) : kind(of), problem(from) {}

  const family& kind;
  owned_problem problem;
  bound_call call{};                   ///< the planned problem's dims, layout and tensors
  impl::kernel_args_buffer lowered{};  ///< sizes, strides and scalars; pointers point to nothing
  std::unique_ptr<impl::planned_tensors> tensors{};
  selection choice{};
  impl::place spot{};
  bits_promise promise = bits_promise::none;
  bool empty = false;
  bool checked = false;
  bool holds_numbers =
      false;  ///< in host memory, which decide what is read: each run looks at them
  std::size_t workspace_bytes = 0;
  impl::fault_counters faults{};  ///< of a checked plan on a GPU
  prim::scratch_memory of_host{};
  impl::owned_memory own{};
  std::span<std::byte> memory{};
  std::atomic<bool> in_use{false};
};

operation_plan::operation_plan(std::unique_ptr<state> settled) noexcept
    : state_(std::move(settled)) {}
operation_plan::operation_plan(operation_plan&&) noexcept = default;
operation_plan& operation_plan::operator=(operation_plan&&) noexcept = default;
operation_plan::~operation_plan() = default;

const selection& operation_plan::choice() const noexcept {
  return state_->choice;
}
problem_view operation_plan::problem() const noexcept {
  return state_->problem.view();
}
device_id operation_plan::device() const noexcept {
  return state_->spot.device;
}
int operation_plan::threads() const noexcept {
  return state_->spot.workers;
}
std::size_t operation_plan::workspace_bytes() const noexcept {
  return state_->workspace_bytes;
}

namespace {

/// Compares a run with the plan: what the choice of the row was based on.
[[gnu::cold, gnu::noinline]] status compare_with_plan(const bound_call& run,
                                                      const bound_call& planned) {
  status failure;
  const signature& form = run.form();
  const auto is_free = [&](std::size_t tensor) {
    return form.tensors[tensor].free && (run.op->required >> tensor & 1u) == 0;
  };
  for (std::size_t i = 0; i < form.tensors.size(); ++i) {
    const tensor_form& tensor = form.tensors[i];
    if (run.has(i) != planned.has(i) && !is_free(i)) {
      checks::refuse(
          failure, tensor.name,
          run.has(i) ? ": is given, the plan has none" : ": is absent, the plan has one");
      return failure;
    }
    if (!run.has(i) || !planned.has(i) || is_free(i)) continue;
    if (run.tensors[i].type == planned.tensors[i].type || tensor.like >= 0) continue;
    checks::refuse(failure, tensor.name, ": dtype is ", name_of(run.tensors[i].type),
                   ", the plan has ", name_of(planned.tensors[i].type));
    return failure;
  }
  for (std::size_t i = 0; i < form.dims.size(); ++i) {
    if (form.dims[i].source != dim_source::tensor || run.owners[i] < 0) continue;
    const auto owner = static_cast<std::size_t>(run.owners[i]);
    if (planned.owners[i] < 0 || run.dims[i] == planned.dims[i] || is_free(owner)) continue;
    if ((run.op->required >> owner & 1u) == 0 &&
        form.tensors[owner].holds == tensor_contents::values)
      continue;
    checks::refuse(failure, form.tensors[owner].name, ": ", form.dims[i].label, " is ", run.dims[i],
                   ", the plan has ", planned.dims[i]);
    return failure;
  }
  return failure;
}

/// The args of a run whose tensors are not row-major, or not where the plan runs.
[[gnu::noinline]] status lower_closely(const operation_plan::state& plan,
                                       const tensor_view* tensors,
                                       impl::kernel_args_buffer& lowered) {
  const operation& op = *plan.problem.op;
  bound_call run{.op = &op, .tensors = tensors, .options = plan.problem.options.data()};
  device_id device;
  if (status done = lower_call(run, *op.how, lowered.bytes.data(), &device); !done) return done;
  if (status done = compare_with_plan(run, plan.call); !done) return done;
  if (device != plan.tensors->device()) {
    return refusal(status_code::invalid_argument,
                   {op.form->tensors[op.order[0]].name, ": device is ", device, ", the plan has ",
                    plan.tensors->device()});
  }
  if (plan.tensors->rows_are_aligned() && is_unaligned(op, tensors, device)) {
    std::string text;
    for (const tensor_form& form : op.form->tensors) {
      if (form.aligned_rows) append(text, {text.empty() ? "" : ", ", form.name});
    }
    append(text, {": not every row starts at a multiple of 16 bytes, the plan was made for rows ",
                  "that do"});
    return {status_code::invalid_argument, std::move(text)};
  }
  return {};
}

/// A run whose tensors have the planned shapes.
bound_call call_of_run(const operation_plan::state& plan, const tensor_view* tensors) {
  bound_call run = plan.call;
  run.tensors = tensors;
  run.present = checks::tensors_present(run);
  return run;
}

/// The numbers that a run's tensors of host memory hold.
status check_contents(const operation_plan::state& plan, const tensor_view* tensors) {
  status failure;
  bound_call run = call_of_run(plan, tensors);
  static_cast<void>(checks::are_contents(run, failure));
  return failure;
}

/// True if tensors of the operation hold numbers that are looked at.
bool has_contents(const bound_call& call) noexcept {
  for (std::size_t i = 0; i < call.form().tensors.size(); ++i) {
    if (call.has(i) && call.form().tensors[i].holds != tensor_contents::values) return true;
  }
  return false;
}

/// The args of a run, but for pointers if `placed` says that these have been filled in.
[[gnu::noinline]] status look_closely(const operation_plan::state& plan, const tensor_view* tensors,
                                      bool placed, impl::kernel_args_buffer& lowered) {
  return placed ? check_contents(plan, tensors) : lower_closely(plan, tensors, lowered);
}

/// Counts the faults of a run of a checked plan, also of one that has nothing to compute.
[[gnu::cold, gnu::noinline]] status count_faults(const operation_plan::state& plan,
                                                 const tensor_view* tensors, void* stream) {
  const impl::cuda::current_device scope(plan.spot.device.ordinal);
  if (!scope.entered()) return failure_on(plan.spot, "the device", scope.entered());
  const status done = plan.faults.add(call_of_run(plan, tensors), stream);
  return done ? status() : failure_on(plan.spot, "faults", done);
}

/// A planned run on a GPU, whose arguments are valid.
[[gnu::noinline]] status run_on_gpu(const operation_plan::state& plan, const ready_call& call,
                                    std::span<std::byte> workspace, void* stream) {
  impl::place spot = plan.spot;
  const impl::cuda::current_device scope(spot.device.ordinal);
  if (!scope.entered()) return failure_on(spot, "the device", scope.entered());
  spot.stream = stream;
  return launch_on_gpu(*plan.choice.instance, call, spot, workspace);
}

}  // namespace

status operation_plan::run(const tensor_view* tensors, std::span<std::byte> workspace,
                           void* stream) const {
  const state& plan = *state_;
  if (stream != nullptr) {
    if (status done = check_stream(plan.spot.device, stream); !done) return done;
  }
  impl::kernel_args_buffer lowered;
  copy_bytes(lowered.bytes.data(), plan.lowered.bytes.data(), plan.problem.op->how->bytes);
  const bool placed = plan.tensors->place(tensors, lowered.bytes.data());
  if (!placed || plan.holds_numbers) {
    if (status done = look_closely(plan, tensors, placed, lowered); !done) return done;
  }
  if (plan.workspace_bytes > 0) {
    if (status done = prim::check_workspace(workspace, plan.workspace_bytes); !done) return done;
  }
  if (plan.faults.reserved()) [[unlikely]] {
    if (status done = count_faults(plan, tensors, stream); !done) return done;
  }
  if (plan.empty) return {};
  keep_promise(*plan.choice.instance, plan.promise, lowered);
  count_call(plan.choice);
  const problem_view problem{plan.problem.op, tensors, plan.problem.options.data(),
                             plan.problem.unaligned};
  const ready_call ready{plan.kind, problem, lowered.bytes.data()};
  if (plan.spot.is_gpu()) return run_on_gpu(plan, ready, workspace, stream);
  return launch(*plan.choice.instance, ready, plan.spot.workers, workspace);
}

status operation_plan::run(const tensor_view* tensors, std::span<std::byte> workspace) const {
  return run(tensors, workspace, state_->spot.stream);
}

status operation_plan::run(const tensor_view* tensors, void* stream) const {
  state& plan = *state_;
  if (plan.workspace_bytes == 0) return run(tensors, std::span<std::byte>(), stream);
  if (plan.in_use.exchange(true, std::memory_order_acquire)) {
    return refusal(status_code::workspace,
                   {"plan: another run uses the plan's workspace; give each concurrent run ",
                    plan.workspace_bytes, " bytes of its own"});
  }
  const struct released {
    std::atomic<bool>& in_use;
    ~released() { in_use.store(false, std::memory_order_release); }
  } at_the_end{plan.in_use};
  return run(tensors, plan.memory, stream);
}

status operation_plan::run(const tensor_view* tensors) const {
  return run(tensors, state_->spot.stream);
}

result<std::vector<tensor_faults>> operation_plan::faults() const {
  return faults(state_->spot.stream);
}

[[gnu::cold]] result<std::vector<tensor_faults>> operation_plan::faults(void* stream) const {
  const state& plan = *state_;
  if (status done = check_stream(plan.spot.device, stream); !done) return done;
  std::vector<tensor_faults> faults;
  if (!plan.spot.is_gpu()) return faults;  // runs with faults are refused
  if (!plan.checked) {
    return refusal(status_code::invalid_argument, {"plan: counts no faults on ", plan.spot.device,
                                                   ", it was made with context.checked false"});
  }
  if (!plan.faults.reserved()) return faults;
  const impl::cuda::current_device scope(plan.spot.device.ordinal);
  if (!scope.entered()) return failure_on(plan.spot, "the device", scope.entered());
  impl::tensor_counts counts{};
  if (status done = plan.faults.read(counts, stream); !done) {
    return failure_on(plan.spot, "faults", done);
  }
  const auto tensors = plan.problem.op->form->tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (counts[i] != 0) faults.push_back({tensors[i].name, i, counts[i]});
  }
  return faults;
}

namespace {

/// True if calls of the operation may have tensors that hold numbers that are looked at.
bool may_have_contents(const operation& op) noexcept {
  for (int i = 0; i < op.tensor_count; ++i) {
    const tensor_form& form = op.form->tensors[op.order[static_cast<std::size_t>(i)]];
    if (form.holds != tensor_contents::values) return true;
  }
  return false;
}

/// The scratch memory of a plan: the caller's, that of its allocator, or the plan's own.
status reserve(operation_plan::state& plan, const context& where) {
  const impl::place& spot = plan.spot;
  const std::size_t needed = plan.workspace_bytes;
  if (!where.workspace.empty()) {
    plan.memory = where.workspace;
    return prim::check_workspace(plan.memory, needed);
  }
  if (where.allocator != nullptr) return plan.own.take(*where.allocator, spot, needed, plan.memory);
  return spot.is_gpu() ? plan.own.take_for_plan(spot, needed, plan.memory)
                       : plan.of_host.reserve(needed, plan.memory);
}

/// Makes the row ready on its device and reserves the plan's memory there.
[[gnu::cold]] status settle(operation_plan::state& plan, const context& where) {
  const impl::place& spot = plan.spot;
  if (!spot.is_gpu()) return reserve(plan, where);
  const impl::cuda::current_device scope(spot.device.ordinal);
  if (!scope.entered()) return failure_on(spot, "the device", scope.entered());
  if (status done = make_ready(*plan.choice.instance); !done) {
    return failure_on(spot, plan.choice.row(), done);
  }
  if (plan.checked && may_have_contents(*plan.problem.op)) {
    if (status done = plan.faults.reserve(spot); !done) return done;
  }
  return reserve(plan, where);
}

}  // namespace

[[gnu::cold]] result<operation_plan> plan_operation(const family& kind, const problem_view& problem,
                                                    const context& where) {
  auto plan = std::make_unique<operation_plan::state>(kind, problem);
  std::array<tensor_view, max_tensors> views;
  const problem_view asked = plan->problem.view();
  if (status done = lower(asked, plan->call, views.data(), plan->lowered); !done) return done;
  if (status done = find_place(where.device, where, plan->spot); !done) return done;
  plan->empty = is_empty(plan->call, true);
  plan->checked = where.checked;
  plan->holds_numbers = plan->spot.device.kind == device_kind::cpu && has_contents(plan->call);
  const problem_view complete{asked.op, views.data(), asked.options, asked.unaligned};
  if (status done = choose(kind, complete, where, plan->spot, plan->choice); !done) return done;
  const int workers = plan->spot.workers;
  plan->promise = policy_of(where).promise;
  keep_promise(*plan->choice.instance, plan->promise, plan->lowered);
  plan->workspace_bytes =
      plan->empty ? 0 : plan->choice.instance->workspace_bytes(plan->lowered.bytes.data(), workers);
  plan->tensors =
      std::make_unique<impl::planned_tensors>(asked, where.device, plan->call, views.data());
  // Strides of the outputs that a run may have besides; their pointers are set by the run.
  bound_call offered = plan->call;
  offered.present = checks::tensors_present(offered);
  fill_kernel_args(offered, *asked.op->how, plan->lowered.bytes.data());
  std::copy_n(views.data(), plan->problem.tensors.size(), plan->problem.tensors.data());
  plan->call.tensors = plan->problem.tensors.data();
  plan->call.options = plan->problem.options.data();
  if (status done = settle(*plan, where); !done) return done;
  return operation_plan(std::move(plan));
}

[[gnu::cold]] result<operation_plan> plan_operation(const family& kind, numbered_problem asked,
                                                    const context& where) {
  status failure;
  asked.problem.op = operation_with(asked.operations, asked.number, failure);
  if (!failure) return failure;
  return plan_operation(kind, asked.problem, where);
}

}  // namespace tessera
