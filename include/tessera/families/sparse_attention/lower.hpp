// What sparse attention problems mean to the engines of spec/lower.hpp and spec/problem_text.hpp.
#pragma once

#include <cstddef>
#include <span>

#include <tessera/families/sparse_attention/declaration.hpp>
#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/families/sparse_attention/problem.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

/// The table of a problem whose operation is number `Number` of the family.
template <class Problem, std::size_t Number>
struct sparse_operation_table {
  using problem_type = Problem;
  using kernel_args = sparse_attention_kernel_args;
  static constexpr auto operations =
      std::span<const operation>(sparse_attention_operations).subspan(Number, 1);
};

template <>
struct operation_table<blocksparse_op> : sparse_operation_table<blocksparse_problem, 0> {};
template <>
struct operation_table<blocksparse_backward_op>
    : sparse_operation_table<blocksparse_backward_problem, 1> {};
template <>
struct operation_table<native_sparse_op> : sparse_operation_table<native_sparse_problem, 2> {};
template <>
struct operation_table<native_sparse_backward_op>
    : sparse_operation_table<native_sparse_backward_problem, 3> {};

}  // namespace tessera
