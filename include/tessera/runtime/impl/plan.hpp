// Plans of any family: a selection with its launch arguments and its memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <tessera/api/plan.hpp>
#include <tessera/runtime/impl/operation.hpp>
#include <tessera/runtime/impl/threads.hpp>
#include <tessera/runtime/impl/workspace.hpp>

namespace tessera {

template <class Family>
struct basic_plan<Family>::state {
  problem_type problem{};
  typename Family::kernel_args_type
      planned{};  ///< sizes and scalars; its pointers point to nothing
  typename Family::planned_type tensors{};
  selection_type choice{};
  int threads = 1;
  std::size_t workspace_bytes = 0;
  impl::scratch_memory own{};
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
int basic_plan<Family>::threads() const noexcept {
  return state_->threads;
}
template <class Family>
std::size_t basic_plan<Family>::workspace_bytes() const noexcept {
  return state_->workspace_bytes;
}

template <class Family>
status basic_plan<Family>::run(const args_type& args, std::span<std::byte> workspace) const {
  const state& plan = *state_;
  typename Family::kernel_args_type lowered = plan.planned;
  if (status done = Family::lower_run(plan.problem, plan.tensors, plan.planned, args, lowered);
      !done) {
    return done;
  }
  if (Family::is_empty(lowered)) return {};
  if (status done = check_workspace(workspace, plan.workspace_bytes); !done) return done;
  count_call<Family>(plan.choice);
  return launch<Family>(*plan.choice.instance, plan.problem, args, lowered, plan.threads,
                        workspace);
}

template <class Family>
status basic_plan<Family>::run(const args_type& args) const {
  state& plan = *state_;
  if (plan.in_use.exchange(true, std::memory_order_acquire)) {
    return {status_code::workspace,
            "plan: another run uses the plan's workspace; give each concurrent run " +
                std::to_string(plan.workspace_bytes) + " bytes of its own"};
  }
  status done = run(args, plan.memory);
  plan.in_use.store(false, std::memory_order_release);
  return done;
}

template <class Family>
[[gnu::cold]] result<basic_plan<Family>> impl::make_plan(
    const typename Family::problem_type& problem, const context& where) {
  static_assert(executable_family<Family>);
  auto made = std::make_unique<typename basic_plan<Family>::state>();
  made->problem = problem;
  if (status done = Family::lower_problem(problem, made->planned); !done) return done;
  if (status done = resolve_threads(where.threads, made->threads); !done) return done;
  const auto chosen = choose<Family>(problem, where, made->threads);
  if (!chosen) return chosen.failure();
  made->choice = *chosen;
  made->tensors = Family::plan_tensors(problem);
  made->workspace_bytes = made->choice.instance->workspace_bytes(made->planned, made->threads);
  made->memory = where.workspace;
  const status memory = where.workspace.empty()
                            ? made->own.reserve(made->workspace_bytes, made->memory)
                            : check_workspace(where.workspace, made->workspace_bytes);
  if (!memory) return memory;
  return basic_plan<Family>(std::move(made));
}

}  // namespace tessera
