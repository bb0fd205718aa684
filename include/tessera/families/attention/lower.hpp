// What attention problems mean to the engines of spec/lower.hpp and spec/problem_text.hpp.
#pragma once

#include <cstddef>
#include <span>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/operations.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

/// The operations of a table, which is a part of all from `first` on.
template <class Problem, std::size_t first, const auto& table>
struct attention_operation_table {
  using problem_type = Problem;
  using kernel_args = attention_kernel_args;
  static constexpr auto operations =
      std::span<const operation>(attention_operations).subspan(first, table.size());
};

template <>
struct operation_table<flash_op>
    : attention_operation_table<flash_problem, 0, attention_table::operations> {};
template <>
struct operation_table<page_op>
    : attention_operation_table<page_problem, attention_table::operations.size(),
                                paged_table::operations> {};
template <>
struct operation_table<ragged_decode_op>
    : attention_operation_table<ragged_decode_problem,
                                attention_table::operations.size() + paged_table::operations.size(),
                                ragged_decode_table::operations> {};

}  // namespace tessera
