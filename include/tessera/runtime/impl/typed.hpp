// Plans and explanations of the structs of a family: views of them for the engine.
#pragma once

#include <span>
#include <utility>

#include <tessera/api/plan.hpp>
#include <tessera/runtime/operation.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera::impl {

/// The engine's view of a problem, which outlives it; no operation where its number is none.
/// `operations`: those that the problem's enumerator counts.
template <class Problem>
problem_view view_of(std::span<const operation> operations, const Problem& problem,
                     status& failure) {
  return {operation_with(operations, problem.op, failure), tensors_of(problem.tensors),
          &problem.options, problem.unaligned};
}

template <class Problem>
result<basic_plan<Problem>> plan_of(const family& kind, const Problem& problem,
                                    const context& where, std::span<const operation> operations) {
  status failure;
  const problem_view view = view_of(operations, problem, failure);
  if (!failure) return failure;
  result<operation_plan> settled = plan_operation(kind, view, where);
  if (!settled) return settled.failure();
  return basic_plan<Problem>(*std::move(settled));
}

template <class Problem>
result<explanation> explain_of(const family& kind, const Problem& problem, const context& where,
                               const device_facts* device, std::span<const operation> operations) {
  status failure;
  const problem_view view = view_of(operations, problem, failure);
  if (!failure) return failure;
  return explain_operation(kind, view, where, device);
}

}  // namespace tessera::impl
