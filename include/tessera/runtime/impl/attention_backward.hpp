// The gradients of attention of a build: their record and their operations. Included by exactly one
// generated unit, behind the registry.
#pragma once

#include <tessera/api/attention_backward.hpp>
#include <tessera/families/attention_backward/family.hpp>
#include <tessera/families/attention_backward/lower.hpp>
#include <tessera/families/attention_backward/registry.hpp>
#include <tessera/runtime/operation.hpp>

namespace tessera {

constinit const family attention_backward_record =
    family_of<attention_backward_family, &attention_backward_registry,
              &attention_backward_code_version>();

status flash_attention_backward(const attention_backward_args& args,
                                const flash_attention_options& options, const context& where) {
  return call_of(attention_backward_record, attention_backward_op::flash_attention_backward, args,
                 options, where);
}
status attention_backward(const attention_backward_args& args,
                          const flash_attention_options& options, const context& where) {
  return call_of(attention_backward_record, attention_backward_op::attention_backward, args,
                 options, where);
}
status scaled_dot_product_attention_backward(const attention_backward_args& args,
                                             const flash_attention_options& options,
                                             const context& where) {
  return call_of(attention_backward_record,
                 attention_backward_op::scaled_dot_product_attention_backward, args, options,
                 where);
}

result<attention_backward_plan> plan(const attention_backward_problem& problem,
                                     const context& where) {
  return plan_of(attention_backward_record, problem, where);
}
result<explanation> explain(const attention_backward_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(attention_backward_record, numbered(problem), where, device);
}

}  // namespace tessera
