// The family of quantised weights of a build: its record and its operations. Included by exactly
// one generated unit, behind the registry.
#pragma once

#include <tessera/api/quantized.hpp>
#include <tessera/families/quantized/family.hpp>
#include <tessera/families/quantized/lower.hpp>
#include <tessera/families/quantized/registry.hpp>
#include <tessera/runtime/operation.hpp>

namespace tessera {

constinit const family quantized_record =
    family_of<quantized_family, &quantized_registry, &quantized_code_version>();

status quantize(const weight_args& args, const quantized_options& options, const context& where) {
  return call_of(quantized_record, weight_op::quantize, args, options, where);
}
status dequantize(const weight_args& args, const quantized_options& options, const context& where) {
  return call_of(quantized_record, weight_op::dequantize, args, options, where);
}
status prepack_quantized_weights(const weight_args& args, const quantized_options& options,
                                 const context& where) {
  return call_of(quantized_record, weight_op::prepack_quantized_weights, args, options, where);
}
status quantized_matmul(const quantized_matmul_args& args, const quantized_options& options,
                        const context& where) {
  return call_of(quantized_record, quantized_matmul_op::quantized_matmul, args, options, where);
}
status quantized_matmul_backward(const quantized_matmul_args& args,
                                 const quantized_options& options, const context& where) {
  return call_of(quantized_record, quantized_matmul_op::quantized_matmul_backward, args, options,
                 where);
}

result<weight_plan> plan(const weight_problem& problem, const context& where) {
  return plan_of(quantized_record, problem, where);
}
result<explanation> explain(const weight_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(quantized_record, numbered(problem), where, device);
}

result<quantized_matmul_plan> plan(const quantized_matmul_problem& problem, const context& where) {
  return plan_of(quantized_record, problem, where);
}
result<explanation> explain(const quantized_matmul_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(quantized_record, numbered(problem), where, device);
}

}  // namespace tessera
