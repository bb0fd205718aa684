// The mean pooling family of a build: its record and its operations. Included by exactly one
// generated unit, behind the registry.
#pragma once

#include <tessera/api/mean_pooling.hpp>
#include <tessera/families/mean_pooling/family.hpp>
#include <tessera/families/mean_pooling/lower.hpp>
#include <tessera/families/mean_pooling/registry.hpp>
#include <tessera/runtime/operation.hpp>

namespace tessera {

constinit const family mean_pooling_record =
    family_of<mean_pooling_family, &mean_pooling_registry, &mean_pooling_code_version>();

status mean_pooling(const mean_pooling_args& args, const mean_pooling_options& options,
                    const context& where) {
  return call_of(mean_pooling_record, mean_pooling_op::mean_pooling, args, options, where);
}
status mean_pooling_chunks(const mean_pooling_args& args, const mean_pooling_options& options,
                           const context& where) {
  return call_of(mean_pooling_record, mean_pooling_op::mean_pooling_chunks, args, options, where);
}
status mean_pooling_backward(const mean_pooling_args& args, const mean_pooling_options& options,
                             const context& where) {
  return call_of(mean_pooling_record, mean_pooling_op::mean_pooling_backward, args, options, where);
}
status mean_pooling_chunks_backward(const mean_pooling_args& args,
                                    const mean_pooling_options& options, const context& where) {
  return call_of(mean_pooling_record, mean_pooling_op::mean_pooling_chunks_backward, args, options,
                 where);
}

result<mean_pooling_plan> plan(const mean_pooling_problem& problem, const context& where) {
  return plan_of(mean_pooling_record, problem, where);
}
result<explanation> explain(const mean_pooling_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(mean_pooling_record, numbered(problem), where, device);
}

}  // namespace tessera
