// Plans of any family: a selection with its launch arguments and its memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <tessera/api/plan.hpp>
#include <tessera/prim/common/workspace.hpp>
#include <tessera/runtime/impl/cuda/calls.hpp>
#include <tessera/runtime/impl/operation.hpp>
#include <tessera/runtime/impl/place.hpp>
#include <tessera/runtime/impl/workspace.hpp>

namespace tessera {

template <class Family>
struct basic_plan<Family>::state {
  problem_type problem{};
  typename Family::kernel_args_type
      planned{};  ///< sizes and scalars; its pointers point to nothing
  typename Family::planned_type tensors{};
  selection_type choice{};
  impl::place spot{};
  std::size_t workspace_bytes = 0;
  impl::plan_memory own{};
  std::span<std::byte> memory{};
  std::atomic<bool> in_use{false};
};

template <class Family>
basic_plan<Family>::basic_plan(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}
template <class Family>
basic_plan<Family>::basic_plan(basic_plan&&) noexcept = default;
template <class Family>
basic_plan<Family>& basic_plan<Family>::operator=(basic_plan&&) noexcept = default;
template <class Family>
basic_plan<Family>::~basic_plan() = default;

template <class Family>
auto basic_plan<Family>::choice() const noexcept -> const selection_type& {
  return state_->choice;
}
template <class Family>
auto basic_plan<Family>::problem() const noexcept -> const problem_type& {
  return state_->problem;
}
template <class Family>
device_id basic_plan<Family>::device() const noexcept {
  return state_->spot.device;
}
template <class Family>
int basic_plan<Family>::threads() const noexcept {
  return state_->spot.workers;
}
template <class Family>
std::size_t basic_plan<Family>::workspace_bytes() const noexcept {
  return state_->workspace_bytes;
}

namespace {

/// A planned run on a GPU, whose arguments are valid.
template <class Family>
[[gnu::noinline]] status run_on_gpu(const selection_of<Family>& choice,
                                    const typename Family::problem_type& problem,
                                    const typename Family::args_type& args,
                                    const typename Family::kernel_args_type& lowered,
                                    impl::place spot, std::span<std::byte> workspace,
                                    void* stream) {
  const impl::cuda::current_device scope(spot.device.ordinal);
  if (!scope.entered()) return failure_on(spot, "the device", scope.entered());
  spot.stream = stream;
  return launch_on_gpu<Family>(*choice.instance, problem, args, lowered, spot, workspace);
}

}  // namespace

template <class Family>
status basic_plan<Family>::run(const args_type& args, std::span<std::byte> workspace,
                               void* stream) const {
  const state& plan = *state_;
  if (status done = check_stream(plan.spot.device, stream); !done) return done;
  typename Family::kernel_args_type lowered = plan.planned;
  if (status done = Family::lower_run(plan.problem, plan.tensors, plan.planned, args, lowered);
      !done) {
    return done;
  }
  if (Family::is_empty(lowered)) return {};
  if (status done = prim::check_workspace(workspace, plan.workspace_bytes); !done) return done;
  count_call<Family>(plan.choice);
  if (plan.spot.is_gpu()) {
    return run_on_gpu<Family>(plan.choice, plan.problem, args, lowered, plan.spot, workspace,
                              stream);
  }
  return launch<Family>(*plan.choice.instance, plan.problem, args, lowered, plan.spot.workers,
                        workspace);
}

template <class Family>
status basic_plan<Family>::run(const args_type& args, std::span<std::byte> workspace) const {
  return run(args, workspace, state_->spot.stream);
}

template <class Family>
status basic_plan<Family>::run(const args_type& args, void* stream) const {
  state& plan = *state_;
  if (plan.workspace_bytes == 0) return run(args, std::span<std::byte>(), stream);
  if (plan.in_use.exchange(true, std::memory_order_acquire)) {
    return {status_code::workspace,
            "plan: another run uses the plan's workspace; give each concurrent run " +
                std::to_string(plan.workspace_bytes) + " bytes of its own"};
  }
  const struct released {
    std::atomic<bool>& in_use;
    ~released() { in_use.store(false, std::memory_order_release); }
  } at_the_end{plan.in_use};
  return run(args, plan.memory, stream);
}

template <class Family>
status basic_plan<Family>::run(const args_type& args) const {
  return run(args, state_->spot.stream);
}

namespace {

/// Makes the row ready on its device and reserves the plan's memory there.
template <class Family>
[[gnu::cold]] status settle(const selection_of<Family>& choice, const impl::place& spot,
                            const context& where, std::size_t bytes, impl::plan_memory& own,
                            std::span<std::byte>& memory) {
  if (!spot.is_gpu()) return own.reserve(spot, where, bytes, memory);
  const impl::cuda::current_device scope(spot.device.ordinal);
  if (!scope.entered()) return failure_on(spot, "the device", scope.entered());
  if (status done = make_ready(*choice.instance); !done) {
    return failure_on(spot, choice.row(), done);
  }
  return own.reserve(spot, where, bytes, memory);
}

}  // namespace

template <class Family>
[[gnu::cold]] result<basic_plan<Family>> impl::make_plan(
    const typename Family::problem_type& problem, const context& where) {
  static_assert(executable_family<Family>);
  auto made = std::make_unique<typename basic_plan<Family>::state>();
  made->problem = problem;
  if (status done = Family::lower_problem(problem, made->planned); !done) return done;
  if (status done = find_place(where.device, where, made->spot); !done) return done;
  const auto chosen = choose<Family>(problem, where, made->spot);
  if (!chosen) return chosen.failure();
  made->choice = *chosen;
  made->tensors = Family::plan_tensors(problem, where.device);
  made->workspace_bytes = made->choice.instance->workspace_bytes(made->planned, made->spot.workers);
  const status settled = settle<Family>(made->choice, made->spot, where, made->workspace_bytes,
                                        made->own, made->memory);
  if (!settled) return settled;
  return basic_plan<Family>(std::move(made));
}

}  // namespace tessera
