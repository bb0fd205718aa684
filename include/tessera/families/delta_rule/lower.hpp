// What delta rule problems mean to the engines of spec/lower.hpp and spec/problem_text.hpp.
#pragma once

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/families/delta_rule/operations.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

template <>
struct operation_table<delta_rule_op>
    : declared::operation_table_of<delta_rule_problem, delta_rule_kernel_args,
                                   delta_rule_operations, delta_rule_table::operations> {};
template <>
struct operation_table<rwkv7_op>
    : declared::operation_table_of<rwkv7_problem, delta_rule_kernel_args, delta_rule_operations,
                                   rwkv7_table::operations> {};
template <>
struct operation_table<ragged_delta_rule_op>
    : declared::operation_table_of<ragged_delta_rule_problem, delta_rule_kernel_args,
                                   delta_rule_operations, ragged_delta_rule_table::operations> {};
template <>
struct operation_table<ragged_delta_rule_v2_op>
    : declared::operation_table_of<ragged_delta_rule_v2_problem, delta_rule_kernel_args,
                                   delta_rule_operations, ragged_delta_rule_v2_table::operations> {
};

}  // namespace tessera
