// The operations of mean pooling: validate, then what all families share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/api/mean_pooling.hpp>
#include <tessera/families/mean_pooling/lower.hpp>
#include <tessera/runtime/impl/operation.hpp>
#include <tessera/runtime/impl/plan.hpp>
#include <tessera/runtime/mean_pooling.hpp>

namespace tessera {

status mean_pooling_family::lower_problem(const mean_pooling_problem& problem,
                                          mean_pooling_kernel_args& lowered) {
  return lower(problem, lowered);
}

status mean_pooling_family::lower_run(const mean_pooling_problem& problem,
                                      const planned_type& planned, const mean_pooling_kernel_args&,
                                      const mean_pooling_args& args,
                                      mean_pooling_kernel_args& lowered) {
  device_id device;
  if (status done = lower(problem.op, args, problem.options, lowered, &device); !done) return done;
  if (device != planned.device) {
    return {status_code::invalid_argument,
            std::string(is_backward(problem.op) ? "d_x" : "x") + ": device is " +
                std::string(tessera::text_of(device).view()) + ", the plan has " +
                std::string(tessera::text_of(planned.device).view())};
  }
  const mean_pooling_problem given = problem_of(args, problem.options, problem.op);
  if (given == problem) return {};
  const auto differs = [](std::string_view tensor, const tensor_shape& ours,
                          const tensor_shape& planned) -> status {
    std::string sentence(tensor);
    for (int axis = 0; axis < planned.rank && ours.rank == planned.rank; ++axis) {
      const auto at = static_cast<std::size_t>(axis);
      if (ours.extent[at] == planned.extent[at]) continue;
      sentence += ": extent of axis " + std::to_string(axis) + " is " +
                  std::to_string(ours.extent[at]) + ", the plan has " +
                  std::to_string(planned.extent[at]);
      return {status_code::invalid_argument, std::move(sentence)};
    }
    sentence.append(": dtype is ").append(name_of(ours.type)).append(", the plan has ");
    return {status_code::invalid_argument, sentence.append(name_of(planned.type))};
  };
  if (!(given.cu_seqlens == problem.cu_seqlens)) {
    return differs("cu_seqlens", given.cu_seqlens, problem.cu_seqlens);
  }
  if (!(given.mask == problem.mask)) return differs("mask", given.mask, problem.mask);
  return differs(is_backward(problem.op) ? "d_x" : "x", given.x, problem.x);
}

static_assert(executable_family<mean_pooling_family>);
template class basic_plan<mean_pooling_family>;

namespace {

status run(mean_pooling_op op, const mean_pooling_args& args, const mean_pooling_options& options,
           const context& context) {
  mean_pooling_kernel_args lowered;
  device_id device;
  if (status done = lower(op, args, options, lowered, &device); !done) return done;
  return call_operation<mean_pooling_family>(problem_of(args, options, op), args, lowered, device,
                                             context);
}

}  // namespace

status mean_pooling(const mean_pooling_args& args, const mean_pooling_options& options,
                    const context& context) {
  return run(mean_pooling_op::mean_pooling, args, options, context);
}

status mean_pooling_chunks(const mean_pooling_args& args, const mean_pooling_options& options,
                           const context& context) {
  return run(mean_pooling_op::mean_pooling_chunks, args, options, context);
}

status mean_pooling_backward(const mean_pooling_args& args, const mean_pooling_options& options,
                             const context& context) {
  return run(mean_pooling_op::mean_pooling_backward, args, options, context);
}

status mean_pooling_chunks_backward(const mean_pooling_args& args,
                                    const mean_pooling_options& options, const context& context) {
  return run(mean_pooling_op::mean_pooling_chunks_backward, args, options, context);
}

result<mean_pooling_plan> plan(const mean_pooling_problem& problem, const context& context) {
  return impl::make_plan<mean_pooling_family>(problem, context);
}

result<explanation> explain(const mean_pooling_problem& problem, const context& context,
                            const device_facts* device) {
  return explain_operation<mean_pooling_family>(problem, context, device);
}

}  // namespace tessera
