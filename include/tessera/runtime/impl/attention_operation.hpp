// The operations of flash attention, forward: validate, then what all families share.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include <tessera/api/flash_attention.hpp>
#include <tessera/families/attention/lower.hpp>
#include <tessera/prim/common/dropout.hpp>
#include <tessera/runtime/attention.hpp>
#include <tessera/runtime/impl/operation.hpp>
#include <tessera/runtime/impl/plan.hpp>
#include <tessera/runtime/impl/planned_memory.hpp>

namespace tessera {

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
status check_shapes(const flash_problem& problem, const attention_kernel_args& planned,
                    const flash_attention_args& args) {
  status failure;
  attention_kernel_args given;
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

status run(flash_op op, const flash_attention_args& args, const flash_attention_options& options,
           const context& context) {
  attention_kernel_args lowered;
  device_id device;
  if (status done = lower(op, args, options, lowered, &device); !done) return done;
  return call_operation<attention_family>(problem_of(args, options, op), args, lowered, device,
                                          context);
}

}  // namespace

status attention_family::lower_problem(const flash_problem& problem,
                                       attention_kernel_args& lowered) {
  return lower(problem, lowered);
}

impl::planned_memory attention_family::plan_tensors(const flash_problem& problem,
                                                    device_id device) {
  return impl::planned_memory(problem, device);
}

namespace {

/// The memory of a run whose tensors are not row-major, or not where the plan runs.
[[gnu::noinline]] status lower_closely(const impl::planned_memory& planned,
                                       const flash_attention_args& args,
                                       attention_kernel_args& lowered) {
  device_id device;
  if (status done = lower_memory(args, lowered, &device); !done) return done;
  if (device != planned.device()) {
    return {status_code::invalid_argument, "q: device is " + std::string(text_of(device).view()) +
                                               ", the plan has " +
                                               std::string(text_of(planned.device()).view())};
  }
  if (planned.rows_are_aligned() && checks::are_unaligned(args)) {
    return {status_code::invalid_argument,
            "q, k, v: not every row starts at a multiple of 16 bytes, the plan was made for rows "
            "that do"};
  }
  return {};
}

/// The lengths that a run's tensors hold.
status check_contents(const flash_attention_args& args, const attention_kernel_args& lowered) {
  status failure;
  static_cast<void>(checks::are_contents(args, lowered, failure));
  return failure;
}

}  // namespace

// Inline: a run calls it once, and the call itself is a fifth of what a run may cost. Kept as a
// function too: tools that launch rows themselves call it from other units.
[[gnu::used]] inline status attention_family::lower_run(const flash_problem& problem,
                                                        const impl::planned_memory& planned,
                                                        const attention_kernel_args& valid,
                                                        const flash_attention_args& args,
                                                        attention_kernel_args& lowered) {
  if (planned.place(args, lowered)) {
    const bool on_host = planned.device().kind == device_kind::cpu;
    const bool lengths = lowered.cu_seqlens_q != nullptr || lowered.seqlens_q != nullptr ||
                         lowered.seqlens_k != nullptr;
    return on_host && lengths ? check_contents(args, lowered) : status();
  }
  if (status done = check_shapes(problem, valid, args); !done) return done;
  return lower_closely(planned, args, lowered);
}

status attention_family::finish(const attention_instance& row, const flash_attention_args& args,
                                const attention_kernel_args& lowered, const launch_context& where) {
  if (!args.dropout_mask.present()) return {};
  if (is_cpu(row.config.target)) {
    prim::write_dropout_mask(args.dropout_mask, lowered.dropout_seed, lowered.dropout_threshold);
    return {};
  }
  if (row.write_dropout_mask != nullptr) {
    return row.write_dropout_mask(args.dropout_mask, lowered, where.stream);
  }
  return {status_code::ineligible_row,
          std::string(row.name) + ": has no code that writes dropout_mask"};
}

static_assert(executable_family<attention_family>);
template class basic_plan<attention_family>;

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

result<flash_plan> plan(const flash_problem& problem, const context& context) {
  return impl::make_plan<attention_family>(problem, context);
}

result<explanation> explain(const flash_problem& problem, const context& context,
                            const device_facts* device) {
  return explain_operation<attention_family>(problem, context, device);
}

}  // namespace tessera
