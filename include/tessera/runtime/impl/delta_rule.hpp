// The delta rule family of a build: its record and its operations. Included by exactly one
// generated unit, behind the registry.
#pragma once

#include <tessera/api/delta_rule.hpp>
#include <tessera/api/ragged_delta_rule.hpp>
#include <tessera/api/rwkv7.hpp>
#include <tessera/families/delta_rule/family.hpp>
#include <tessera/families/delta_rule/lower.hpp>
#include <tessera/families/delta_rule/registry.hpp>
#include <tessera/runtime/operation.hpp>

namespace tessera {

constinit const family delta_rule_record =
    family_of<delta_rule_family, &delta_rule_registry, &delta_rule_code_version>();

status gated_delta_rule(const delta_rule_args& args, const delta_rule_options& options,
                        const context& where) {
  return call_of(delta_rule_record, delta_rule_op::gated_delta_rule, args, options, where);
}
status kernel_delta_attention(const delta_rule_args& args, const delta_rule_options& options,
                              const context& where) {
  return call_of(delta_rule_record, delta_rule_op::kernel_delta_attention, args, options, where);
}
status gated_delta_rule_backward(const delta_rule_args& args, const delta_rule_options& options,
                                 const context& where) {
  return call_of(delta_rule_record, delta_rule_op::gated_delta_rule_backward, args, options, where);
}
status kernel_delta_attention_backward(const delta_rule_args& args,
                                       const delta_rule_options& options, const context& where) {
  return call_of(delta_rule_record, delta_rule_op::kernel_delta_attention_backward, args, options,
                 where);
}
status rwkv7(const rwkv7_args& args, const rwkv7_options& options, const context& where) {
  return call_of(delta_rule_record, rwkv7_op::rwkv7, args, options, where);
}
status rwkv7_mul(const rwkv7_args& args, const rwkv7_options& options, const context& where) {
  return call_of(delta_rule_record, rwkv7_op::rwkv7_mul, args, options, where);
}
status rwkv7_backward(const rwkv7_args& args, const rwkv7_options& options, const context& where) {
  return call_of(delta_rule_record, rwkv7_op::rwkv7_backward, args, options, where);
}
status rwkv7_mul_backward(const rwkv7_args& args, const rwkv7_options& options,
                          const context& where) {
  return call_of(delta_rule_record, rwkv7_op::rwkv7_mul_backward, args, options, where);
}

result<delta_rule_plan> plan(const delta_rule_problem& problem, const context& where) {
  return plan_of(delta_rule_record, problem, where);
}
result<explanation> explain(const delta_rule_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(delta_rule_record, numbered(problem), where, device);
}

result<rwkv7_plan> plan(const rwkv7_problem& problem, const context& where) {
  return plan_of(delta_rule_record, problem, where);
}
result<explanation> explain(const rwkv7_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(delta_rule_record, numbered(problem), where, device);
}

status ragged_gated_delta_rule(const ragged_delta_rule_args& args,
                               const delta_rule_options& options, const context& where) {
  return call_of(delta_rule_record, ragged_delta_rule_op::ragged_gated_delta_rule, args, options,
                 where);
}
status ragged_gated_delta_rule_backward(const ragged_delta_rule_args& args,
                                        const delta_rule_options& options, const context& where) {
  return call_of(delta_rule_record, ragged_delta_rule_op::ragged_gated_delta_rule_backward, args,
                 options, where);
}
status ragged_gated_delta_rule_v2(const ragged_delta_rule_v2_args& args,
                                  const ragged_delta_rule_v2_options& options,
                                  const context& where) {
  return call_of(delta_rule_record, ragged_delta_rule_v2_op::ragged_gated_delta_rule_v2, args,
                 options, where);
}
status ragged_gated_delta_rule_v2_backward(const ragged_delta_rule_v2_args& args,
                                           const ragged_delta_rule_v2_options& options,
                                           const context& where) {
  return call_of(delta_rule_record, ragged_delta_rule_v2_op::ragged_gated_delta_rule_v2_backward,
                 args, options, where);
}
result<ragged_delta_rule_plan> plan(const ragged_delta_rule_problem& problem,
                                    const context& where) {
  return plan_of(delta_rule_record, problem, where);
}
result<ragged_delta_rule_v2_plan> plan(const ragged_delta_rule_v2_problem& problem,
                                       const context& where) {
  return plan_of(delta_rule_record, problem, where);
}
result<explanation> explain(const ragged_delta_rule_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(delta_rule_record, numbered(problem), where, device);
}
result<explanation> explain(const ragged_delta_rule_v2_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(delta_rule_record, numbered(problem), where, device);
}

}  // namespace tessera
