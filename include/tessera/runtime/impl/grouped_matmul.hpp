// The family of grouped matrix products of a build: its record and its operations. Included by
// exactly one generated unit, behind the registry.
#pragma once

#include <tessera/api/grouped_matmul.hpp>
#include <tessera/families/grouped_matmul/family.hpp>
#include <tessera/families/grouped_matmul/lower.hpp>
#include <tessera/families/grouped_matmul/registry.hpp>
#include <tessera/runtime/operation.hpp>

namespace tessera {

constinit const family grouped_matmul_record =
    family_of<grouped_matmul_family, &grouped_matmul_registry, &grouped_matmul_code_version>();

status grouped_matmul(const grouped_matmul_args& args, const grouped_matmul_options& options,
                      const context& where) {
  return call_of(grouped_matmul_record, grouped_matmul_op::grouped_matmul, args, options, where);
}
status grouped_matmul_backward(const grouped_matmul_args& args,
                               const grouped_matmul_options& options, const context& where) {
  return call_of(grouped_matmul_record, grouped_matmul_op::grouped_matmul_backward, args, options,
                 where);
}
status matmul(const grouped_matmul_args& args, const grouped_matmul_options& options,
              const context& where) {
  return call_of(grouped_matmul_record, grouped_matmul_op::matmul, args, options, where);
}
status matmul_backward(const grouped_matmul_args& args, const grouped_matmul_options& options,
                       const context& where) {
  return call_of(grouped_matmul_record, grouped_matmul_op::matmul_backward, args, options, where);
}

result<grouped_matmul_plan> plan(const grouped_matmul_problem& problem, const context& where) {
  return plan_of(grouped_matmul_record, problem, where);
}
result<explanation> explain(const grouped_matmul_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(grouped_matmul_record, numbered(problem), where, device);
}

}  // namespace tessera
