// The sparse attention family of a build: its record and its operations. Included by exactly one
// generated unit, behind the registry.
#pragma once

#include <tessera/api/sparse_attention.hpp>
#include <tessera/families/sparse_attention/family.hpp>
#include <tessera/families/sparse_attention/lower.hpp>
#include <tessera/families/sparse_attention/registry.hpp>
#include <tessera/runtime/operation.hpp>

namespace tessera {

constinit const family sparse_attention_record =
    family_of<sparse_attention_family, &sparse_attention_registry,
              &sparse_attention_code_version>();

status blocksparse_attention(const blocksparse_attention_args& args,
                             const blocksparse_attention_options& options, const context& where) {
  return call_of(sparse_attention_record, blocksparse_op::blocksparse_attention, args, options,
                 where);
}
status blocksparse_attention_backward(const blocksparse_attention_backward_args& args,
                                      const blocksparse_attention_options& options,
                                      const context& where) {
  return call_of(sparse_attention_record, blocksparse_backward_op::blocksparse_attention_backward,
                 args, options, where);
}
status native_sparse_attention(const native_sparse_attention_args& args,
                               const native_sparse_attention_options& options,
                               const context& where) {
  return call_of(sparse_attention_record, native_sparse_op::native_sparse_attention, args, options,
                 where);
}
status native_sparse_attention_backward(const native_sparse_attention_backward_args& args,
                                        const native_sparse_attention_options& options,
                                        const context& where) {
  return call_of(sparse_attention_record,
                 native_sparse_backward_op::native_sparse_attention_backward, args, options, where);
}

result<blocksparse_plan> plan(const blocksparse_problem& problem, const context& where) {
  return plan_of(sparse_attention_record, problem, where);
}
result<explanation> explain(const blocksparse_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(sparse_attention_record, numbered(problem), where, device);
}
result<blocksparse_backward_plan> plan(const blocksparse_backward_problem& problem,
                                       const context& where) {
  return plan_of(sparse_attention_record, problem, where);
}
result<explanation> explain(const blocksparse_backward_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(sparse_attention_record, numbered(problem), where, device);
}
result<native_sparse_plan> plan(const native_sparse_problem& problem, const context& where) {
  return plan_of(sparse_attention_record, problem, where);
}
result<explanation> explain(const native_sparse_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(sparse_attention_record, numbered(problem), where, device);
}
result<native_sparse_backward_plan> plan(const native_sparse_backward_problem& problem,
                                         const context& where) {
  return plan_of(sparse_attention_record, problem, where);
}
result<explanation> explain(const native_sparse_backward_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(sparse_attention_record, numbered(problem), where, device);
}

}  // namespace tessera
