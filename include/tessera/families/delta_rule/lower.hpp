// What delta rule problems mean to the engines of spec/lower.hpp and spec/problem_text.hpp.
#pragma once

#include <span>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/families/delta_rule/operations.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

template <>
struct operation_table<delta_rule_op> {
  using problem_type = delta_rule_problem;
  using kernel_args = delta_rule_kernel_args;
  static constexpr auto operations =
      std::span<const operation>(delta_rule_operations).first(delta_rule_table::operations.size());
};
template <>
struct operation_table<rwkv7_op> {
  using problem_type = rwkv7_problem;
  using kernel_args = delta_rule_kernel_args;
  static constexpr auto operations =
      std::span<const operation>(delta_rule_operations)
          .subspan(delta_rule_table::operations.size(), rwkv7_table::operations.size());
};
template <>
struct operation_table<ragged_delta_rule_op> {
  using problem_type = ragged_delta_rule_problem;
  using kernel_args = delta_rule_kernel_args;
  static constexpr auto operations =
      std::span<const operation>(delta_rule_operations)
          .subspan(delta_rule_table::operations.size() + rwkv7_table::operations.size(),
                   ragged_delta_rule_table::operations.size());
};
template <>
struct operation_table<ragged_delta_rule_v2_op> {
  using problem_type = ragged_delta_rule_v2_problem;
  using kernel_args = delta_rule_kernel_args;
  static constexpr auto operations = std::span<const operation>(delta_rule_operations)
                                         .last(ragged_delta_rule_v2_table::operations.size());
};

}  // namespace tessera
