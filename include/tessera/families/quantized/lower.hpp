// What problems of quantised weights mean to the engines of spec/lower.hpp and
// spec/problem_text.hpp.
#pragma once

#include <span>

#include <tessera/families/quantized/declaration.hpp>
#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/families/quantized/problem.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

template <>
struct operation_table<weight_op> {
  using problem_type = weight_problem;
  using kernel_args = quantized_kernel_args;
  static constexpr auto operations =
      std::span<const operation>(quantized_operations).first(weight_ops.size());
};

template <>
struct operation_table<quantized_matmul_op> {
  using problem_type = quantized_matmul_problem;
  using kernel_args = quantized_kernel_args;
  static constexpr auto operations =
      std::span<const operation>(quantized_operations).subspan(weight_ops.size());
};

}  // namespace tessera
