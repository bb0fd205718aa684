// What attention problems mean to the engines of spec/lower.hpp and spec/problem_text.hpp.
#pragma once

#include <span>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/operations.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

/// The operations of `table`, which come behind those of the tables `before`.
template <class Problem, const auto& table, const auto&... before>
struct attention_operation_table {
  using problem_type = Problem;
  using kernel_args = attention_kernel_args;
  static constexpr auto operations = std::span<const operation>(attention_operations)
                                         .subspan((before.size() + ... + 0), table.size());
};

template <>
struct operation_table<flash_op>
    : attention_operation_table<flash_problem, attention_table::operations> {};
template <>
struct operation_table<page_op> : attention_operation_table<page_problem, paged_table::operations,
                                                            attention_table::operations> {};
template <>
struct operation_table<ragged_decode_op>
    : attention_operation_table<ragged_decode_problem, ragged_decode_table::operations,
                                attention_table::operations, paged_table::operations> {};
template <>
struct operation_table<unified_op>
    : attention_operation_table<unified_problem, unified_table::operations,
                                attention_table::operations, paged_table::operations,
                                ragged_decode_table::operations> {};
template <>
struct operation_table<ragged_page_op>
    : attention_operation_table<ragged_page_problem, ragged_page_table::operations,
                                attention_table::operations, paged_table::operations,
                                ragged_decode_table::operations, unified_table::operations> {};

}  // namespace tessera
