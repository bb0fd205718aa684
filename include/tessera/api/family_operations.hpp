// What the host unit of a family instantiates for its operations and problems: their functions, and
// the plans and explanations that api/plan.hpp declares. No other file includes this.
#pragma once

#include <cstddef>
#include <utility>

#include <tessera/api/context.hpp>
#include <tessera/api/plan.hpp>
#include <tessera/runtime/operation.hpp>
#include <tessera/runtime/selection.hpp>
#include <tessera/spec/lower.hpp>
#include <tessera/spec/problem.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// The record of the family that serves a problem; the family's unit says which.
template <class Problem>
inline constexpr const family* record_for = nullptr;

template <class Op, class Args, class Options>
numbered_problem numbered(const basic_problem<Op, Args, Options>& problem) noexcept {
  return {operation_table<Op>::operations,
          static_cast<std::size_t>(problem.op),
          {nullptr, tensors_of(problem.tensors), &problem.options, problem.unaligned}};
}

template <class Op, class Args, class Options>
status call_of(const family& kind, Op op, const Args& args, const Options& options,
               const context& where) {
  return call_operation(kind, operation_table<Op>::operations[static_cast<std::size_t>(op)],
                        tensors_of(args), &options, where);
}

template <problem_of_operation Problem>
result<basic_plan<Problem>> plan(const Problem& problem, const context& where) {
  result<operation_plan> settled = plan_operation(*record_for<Problem>, numbered(problem), where);
  if (!settled) return settled.failure();
  return basic_plan<Problem>(*std::move(settled));
}

template <problem_of_operation Problem>
result<explanation> explain(const Problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(*record_for<Problem>, numbered(problem), where, device);
}

}  // namespace tessera
