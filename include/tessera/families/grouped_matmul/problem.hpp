// What is asked of grouped matrix products at run time: dtypes, sizes and options, no pointers.
// Plain data.
#pragma once

#include <cstdint>

#include <tessera/families/grouped_matmul/args.hpp>
#include <tessera/families/grouped_matmul/options.hpp>
#include <tessera/spec/problem_of.hpp>

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

/// See spec/problem_of.hpp.
grouped_matmul_problem problem_type(const grouped_matmul_args&);
inline bool rows_are_unaligned(const grouped_matmul_args& args) noexcept {
  return are_unaligned(args.lhs, args.rhs) || (args.d_out.present() && are_unaligned(args.d_out));
}

}  // namespace tessera
