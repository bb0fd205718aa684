// The family of elementwise recurrences of a build: its record and its operations. Included by
// exactly one generated unit, behind the registry.
#pragma once

#include <tessera/api/selective_scan.hpp>
#include <tessera/families/selective_scan/family.hpp>
#include <tessera/families/selective_scan/lower.hpp>
#include <tessera/families/selective_scan/registry.hpp>
#include <tessera/runtime/operation.hpp>

namespace tessera {

constinit const family selective_scan_record =
    family_of<selective_scan_family, &selective_scan_registry, &selective_scan_code_version>();

status state_space_v1(const state_space_args& args, const state_space_options& options,
                      const context& where) {
  return call_of(selective_scan_record, state_space_op::state_space_v1, args, options, where);
}
status state_space_v2(const state_space_args& args, const state_space_options& options,
                      const context& where) {
  return call_of(selective_scan_record, state_space_op::state_space_v2, args, options, where);
}
status state_space_v1_backward(const state_space_args& args, const state_space_options& options,
                               const context& where) {
  return call_of(selective_scan_record, state_space_op::state_space_v1_backward, args, options,
                 where);
}
status state_space_v2_backward(const state_space_args& args, const state_space_options& options,
                               const context& where) {
  return call_of(selective_scan_record, state_space_op::state_space_v2_backward, args, options,
                 where);
}
status rwkv4(const rwkv4_args& args, const rwkv4_options& options, const context& where) {
  return call_of(selective_scan_record, rwkv4_op::rwkv4, args, options, where);
}
status rwkv4_backward(const rwkv4_args& args, const rwkv4_options& options, const context& where) {
  return call_of(selective_scan_record, rwkv4_op::rwkv4_backward, args, options, where);
}

result<state_space_plan> plan(const state_space_problem& problem, const context& where) {
  return plan_of(selective_scan_record, problem, where);
}
result<explanation> explain(const state_space_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(selective_scan_record, numbered(problem), where, device);
}
result<rwkv4_plan> plan(const rwkv4_problem& problem, const context& where) {
  return plan_of(selective_scan_record, problem, where);
}
result<explanation> explain(const rwkv4_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(selective_scan_record, numbered(problem), where, device);
}

}  // namespace tessera
