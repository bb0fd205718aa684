// What is asked of grouped matrix products at run time: dtypes, sizes and options, no pointers.
// Plain data.
#pragma once

#include <cstdint>

#include <tessera/families/grouped_matmul/args.hpp>
#include <tessera/families/grouped_matmul/options.hpp>
#include <tessera/spec/problem.hpp>

namespace tessera {

/// Operations served by the family of grouped matrix products.
enum class grouped_matmul_op : std::uint8_t {
  grouped_matmul,
  grouped_matmul_backward,
  matmul,
  matmul_backward,
};

constexpr bool is_backward(grouped_matmul_op op) noexcept {
  return op == grouped_matmul_op::grouped_matmul_backward ||
         op == grouped_matmul_op::matmul_backward;
}

/// Rows lie group by group, as group_sizes says; else each matrix has rows of its own.
constexpr bool has_groups(grouped_matmul_op op) noexcept {
  return op == grouped_matmul_op::grouped_matmul ||
         op == grouped_matmul_op::grouped_matmul_backward;
}

/// A call of one of them without its memory.
using grouped_matmul_problem =
    basic_problem<grouped_matmul_op, grouped_matmul_args, grouped_matmul_options>;

/// The shapes and options of a call. Copies; validates nothing.
inline grouped_matmul_problem problem_of(
    const grouped_matmul_args& args, const grouped_matmul_options& options = {},
    grouped_matmul_op op = grouped_matmul_op::grouped_matmul) noexcept {
  return {.op = op,
          .tensors = args,
          .unaligned = are_unaligned(args.lhs, args.rhs) ||
                       (args.d_out.present() && are_unaligned(args.d_out)),
          .options = options};
}

}  // namespace tessera
