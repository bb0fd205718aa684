// The family of fused losses of a build: its record and its operations. Included by exactly one
// generated unit, behind the registry.
#pragma once

#include <tessera/api/losses.hpp>
#include <tessera/families/losses/family.hpp>
#include <tessera/families/losses/lower.hpp>
#include <tessera/families/losses/registry.hpp>
#include <tessera/runtime/operation.hpp>

namespace tessera {

constinit const family losses_record =
    family_of<losses_family, &losses_registry, &losses_code_version>();

status fused_cross_entropy(const cross_entropy_args& args, const cross_entropy_options& options,
                           const context& where) {
  return call_of(losses_record, cross_entropy_op::fused_cross_entropy, args, options, where);
}
status fused_cross_entropy_backward(const cross_entropy_args& args,
                                    const cross_entropy_options& options, const context& where) {
  return call_of(losses_record, cross_entropy_op::fused_cross_entropy_backward, args, options,
                 where);
}

status fused_kl_divergence(const kl_divergence_args& args, const kl_divergence_options& options,
                           const context& where) {
  return call_of(losses_record, kl_divergence_op::fused_kl_divergence, args, options, where);
}
status fused_kl_divergence_backward(const kl_divergence_args& args,
                                    const kl_divergence_options& options, const context& where) {
  return call_of(losses_record, kl_divergence_op::fused_kl_divergence_backward, args, options,
                 where);
}
status fused_linear_cross_entropy(const linear_cross_entropy_args& args,
                                  const linear_cross_entropy_options& options,
                                  const context& where) {
  return call_of(losses_record, linear_cross_entropy_op::fused_linear_cross_entropy, args, options,
                 where);
}
status fused_linear_cross_entropy_backward(const linear_cross_entropy_args& args,
                                           const linear_cross_entropy_options& options,
                                           const context& where) {
  return call_of(losses_record, linear_cross_entropy_op::fused_linear_cross_entropy_backward, args,
                 options, where);
}

result<cross_entropy_plan> plan(const cross_entropy_problem& problem, const context& where) {
  return plan_of(losses_record, problem, where);
}
result<explanation> explain(const cross_entropy_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(losses_record, numbered(problem), where, device);
}

result<kl_divergence_plan> plan(const kl_divergence_problem& problem, const context& where) {
  return plan_of(losses_record, problem, where);
}
result<explanation> explain(const kl_divergence_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(losses_record, numbered(problem), where, device);
}

result<linear_cross_entropy_plan> plan(const linear_cross_entropy_problem& problem,
                                       const context& where) {
  return plan_of(losses_record, problem, where);
}
result<explanation> explain(const linear_cross_entropy_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(losses_record, numbered(problem), where, device);
}

}  // namespace tessera
