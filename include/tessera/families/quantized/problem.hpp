// What is asked of quantised weights at run time: dtypes, sizes and options, no pointers. Plain
// data.
#pragma once

#include <cstdint>

#include <tessera/families/quantized/config.hpp>
#include <tessera/families/quantized/options.hpp>
#include <tessera/families/quantized/product_args.hpp>
#include <tessera/families/quantized/weight_args.hpp>
#include <tessera/spec/problem_of.hpp>

namespace tessera {

/// Operations that pack and unpack weights.
enum class weight_op : std::uint8_t { quantize, dequantize, prepack_quantized_weights };

constexpr quantized_pass pass_of(weight_op op) noexcept {
  return op == weight_op::dequantize ? quantized_pass::dequantize : quantized_pass::quantize;
}

/// A call of one of them without its memory.
using weight_problem = basic_problem<weight_op, weight_args, quantized_options>;

/// Products with packed weights, and their gradients.
enum class quantized_matmul_op : std::uint8_t {
  quantized_matmul,
  quantized_matmul_backward,
  quantized_grouped_matmul,
  quantized_grouped_matmul_backward,
};

constexpr quantized_pass pass_of(quantized_matmul_op op) noexcept {
  return op == quantized_matmul_op::quantized_matmul ||
                 op == quantized_matmul_op::quantized_grouped_matmul
             ? quantized_pass::forward
             : quantized_pass::backward;
}

/// Rows lie group by group, as group_sizes says, and each group has weights of its own.
constexpr bool has_groups(quantized_matmul_op op) noexcept {
  return op == quantized_matmul_op::quantized_grouped_matmul ||
         op == quantized_matmul_op::quantized_grouped_matmul_backward;
}

/// The product of a pass that takes these tensors.
constexpr quantized_matmul_op product_op(quantized_pass pass,
                                         const quantized_matmul_args& args) noexcept {
  using enum quantized_matmul_op;
  if (pass == quantized_pass::backward) {
    return args.group_sizes.present() ? quantized_grouped_matmul_backward
                                      : quantized_matmul_backward;
  }
  return args.group_sizes.present() ? quantized_grouped_matmul : quantized_matmul;
}

/// A call of one of them without its memory.
using quantized_matmul_problem =
    basic_problem<quantized_matmul_op, quantized_matmul_args, quantized_options>;

/// See spec/problem_of.hpp.
weight_problem problem_type(const weight_args&);
quantized_matmul_problem problem_type(const quantized_matmul_args&);

}  // namespace tessera
