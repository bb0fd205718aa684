// Plans: a selection with its launch arguments and its memory.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <tessera/api/flash_plan.hpp>
#include <tessera/runtime/impl/flash_attention.hpp>
#include <tessera/runtime/impl/planned_memory.hpp>
#include <tessera/runtime/impl/threads.hpp>
#include <tessera/runtime/impl/workspace.hpp>
#include <tessera/spec/flash_attention/lower.hpp>

namespace tessera {

struct flash_plan::state {
  flash_problem problem{};
  flash_kernel_args planned{};  ///< sizes and option scalars; its pointers point to nothing
  impl::planned_memory tensors{};
  flash_selection choice{};
  int threads = 1;
  std::size_t workspace_bytes = 0;
  impl::scratch_memory own{};
  std::span<std::byte> memory{};
  std::atomic<bool> in_use{false};
};

namespace {

/// A tensor whose presence decides over rows.
struct planned_tensor {
  std::string_view name;
  tensor_view flash_attention_args::*given;
  tensor_shape flash_problem::*planned;
};

constexpr std::array planned_tensors{
    planned_tensor{"bias_pre", &flash_attention_args::bias_pre, &flash_problem::bias_pre},
    planned_tensor{"bias_post", &flash_attention_args::bias_post, &flash_problem::bias_post},
    planned_tensor{"mask", &flash_attention_args::mask, &flash_problem::mask},
    planned_tensor{"q_segment_ids", &flash_attention_args::q_segment_ids,
                   &flash_problem::q_segment_ids},
    planned_tensor{"sinks", &flash_attention_args::sinks, &flash_problem::sinks},
    planned_tensor{"cu_seqlens_q", &flash_attention_args::cu_seqlens_q,
                   &flash_problem::cu_seqlens_q},
    planned_tensor{"seqlens_q", &flash_attention_args::seqlens_q, &flash_problem::seqlens_q},
    planned_tensor{"seqlens_k", &flash_attention_args::seqlens_k, &flash_problem::seqlens_k},
    planned_tensor{"weights", &flash_attention_args::weights, &flash_problem::weights},
};

[[gnu::cold]] status differs(std::string_view what, std::int64_t given, std::int64_t planned) {
  std::string sentence(what);
  sentence.append(" is ").append(std::to_string(given)).append(", the plan has ");
  return {status_code::invalid_argument, sentence + std::to_string(planned)};
}

/// Validates the shapes of a run that are not exactly the planned ones, and compares what the
/// choice of the row was based on.
status check_shapes(const flash_problem& problem, const flash_kernel_args& planned,
                    const flash_attention_args& args) {
  status failure;
  flash_kernel_args given;
  if (!checks::flash_shapes::check(problem.op, args, problem.options, given, failure)) {
    return failure;
  }
  if (args.q.type != problem.q.type) {
    return {status_code::invalid_argument, "q: dtype is " + std::string(name_of(args.q.type)) +
                                               ", the plan has " +
                                               std::string(name_of(problem.q.type))};
  }
  for (const planned_tensor& one : planned_tensors) {
    const bool present = (args.*one.given).present();
    if (present == (problem.*one.planned).present()) continue;
    return {status_code::invalid_argument,
            std::string(one.name) +
                (present ? ": is given, the plan has none" : ": is absent, the plan has one")};
  }
  if (given.batch != planned.batch) return differs("q: batch", given.batch, planned.batch);
  if (given.q_len != planned.q_len) return differs("q: length", given.q_len, planned.q_len);
  if (given.kv_len != planned.kv_len) return differs("k: length", given.kv_len, planned.kv_len);
  if (given.q_heads != planned.q_heads) return differs("q: heads", given.q_heads, planned.q_heads);
  if (given.kv_heads != planned.kv_heads) {
    return differs("k: heads", given.kv_heads, planned.kv_heads);
  }
  if (given.head_dim != planned.head_dim) {
    return differs("q: head_dim", given.head_dim, planned.head_dim);
  }
  if (given.v_head_dim != planned.v_head_dim) {
    return differs("v: head_dim", given.v_head_dim, planned.v_head_dim);
  }
  return {};
}

}  // namespace

flash_plan::flash_plan(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}
flash_plan::flash_plan(flash_plan&&) noexcept = default;
flash_plan& flash_plan::operator=(flash_plan&&) noexcept = default;
flash_plan::~flash_plan() = default;

const flash_selection& flash_plan::choice() const noexcept {
  return state_->choice;
}
const flash_problem& flash_plan::problem() const noexcept {
  return state_->problem;
}
int flash_plan::threads() const noexcept {
  return state_->threads;
}
std::size_t flash_plan::workspace_bytes() const noexcept {
  return state_->workspace_bytes;
}

status flash_plan::run(const flash_attention_args& args, std::span<std::byte> workspace) const {
  const state& plan = *state_;
  flash_kernel_args lowered = plan.planned;
  if (plan.tensors.admits(args)) {
    status failure;
    if (!checks::are_contents(args, lowered, failure)) return failure;
    checks::fill_tensors(args, lowered);
  } else {
    if (status done = check_shapes(plan.problem, plan.planned, args); !done) return done;
    if (status done = lower_memory(args, lowered); !done) return done;
  }
  if (is_empty(lowered)) return {};
  if (status done = check_workspace(workspace, plan.workspace_bytes); !done) return done;
  return launch(*plan.choice.instance, args, lowered, plan.threads, workspace);
}

status flash_plan::run(const flash_attention_args& args) const {
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

result<flash_plan> plan(const flash_problem& problem, const context& context) {
  auto made = std::make_unique<flash_plan::state>();
  made->problem = problem;
  if (status done = lower(problem, made->planned); !done) return done;
  if (status done = resolve_threads(context.threads, made->threads); !done) return done;
  result<flash_selection> chosen = choose(problem, context, made->threads);
  if (!chosen) return chosen.failure();
  made->choice = *chosen;
  made->tensors = impl::planned_memory(problem);
  made->workspace_bytes = made->choice.instance->workspace_bytes(made->planned, made->threads);
  made->memory = context.workspace;
  const status memory = context.workspace.empty()
                            ? made->own.reserve(made->workspace_bytes, made->memory)
                            : check_workspace(context.workspace, made->workspace_bytes);
  if (!memory) return memory;
  return flash_plan(std::move(made));
}

result<explanation> explain(const flash_problem& problem, const context& context,
                            const device_facts* device) {
  flash_kernel_args planned;
  int threads = 0;
  if (status done = lower(problem, planned); !done) return done;
  if (status done = resolve_threads(context.threads, threads); !done) return done;
  return explain(
      inquiry_of(problem, context, threads, device != nullptr ? *device : this_device()));
}

}  // namespace tessera
