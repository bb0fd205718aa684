// The family of linear attention with decay of a build: its record and its operations. Included by
// exactly one generated unit, behind the registry.
#pragma once

#include <tessera/api/chunked_scan.hpp>
#include <tessera/families/chunked_scan/family.hpp>
#include <tessera/families/chunked_scan/lower.hpp>
#include <tessera/families/chunked_scan/registry.hpp>
#include <tessera/runtime/operation.hpp>

namespace tessera {

constinit const family chunked_scan_record =
    family_of<chunked_scan_family, &chunked_scan_registry, &chunked_scan_code_version>();

status recurrent(const recurrent_args& args, const recurrent_options& options,
                 const context& where) {
  return call_of(chunked_scan_record, recurrent_op::recurrent, args, options, where);
}
status gla(const recurrent_args& args, const recurrent_options& options, const context& where) {
  return call_of(chunked_scan_record, recurrent_op::gla, args, options, where);
}
status lightning_attn(const recurrent_args& args, const recurrent_options& options,
                      const context& where) {
  return call_of(chunked_scan_record, recurrent_op::lightning_attn, args, options, where);
}
status recurrent_backward(const recurrent_args& args, const recurrent_options& options,
                          const context& where) {
  return call_of(chunked_scan_record, recurrent_op::recurrent_backward, args, options, where);
}
status gla_backward(const recurrent_args& args, const recurrent_options& options,
                    const context& where) {
  return call_of(chunked_scan_record, recurrent_op::gla_backward, args, options, where);
}
status lightning_attn_backward(const recurrent_args& args, const recurrent_options& options,
                               const context& where) {
  return call_of(chunked_scan_record, recurrent_op::lightning_attn_backward, args, options, where);
}
status rwkv6(const rwkv6_args& args, const rwkv6_options& options, const context& where) {
  return call_of(chunked_scan_record, rwkv6_op::rwkv6, args, options, where);
}
status rwkv6_backward(const rwkv6_args& args, const rwkv6_options& options, const context& where) {
  return call_of(chunked_scan_record, rwkv6_op::rwkv6_backward, args, options, where);
}

result<recurrent_plan> plan(const recurrent_problem& problem, const context& where) {
  return plan_of(chunked_scan_record, problem, where);
}
result<explanation> explain(const recurrent_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(chunked_scan_record, numbered(problem), where, device);
}
result<rwkv6_plan> plan(const rwkv6_problem& problem, const context& where) {
  return plan_of(chunked_scan_record, problem, where);
}
result<explanation> explain(const rwkv6_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(chunked_scan_record, numbered(problem), where, device);
}

}  // namespace tessera
