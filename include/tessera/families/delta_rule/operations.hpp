// Every operation of the delta rule family, whatever its tensors.
#pragma once

#include <tessera/families/delta_rule/declaration.hpp>
#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/families/delta_rule/ragged_declaration.hpp>
#include <tessera/families/delta_rule/ragged_v2_declaration.hpp>
#include <tessera/families/delta_rule/rwkv7_declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

/// In the order of their numbers: further ones come behind.
inline constexpr auto delta_rule_operations =
    declared::joined(delta_rule_table::operations, rwkv7_table::operations,
                     ragged_delta_rule_table::operations, ragged_delta_rule_v2_table::operations);

/// What its problems are to the engines.
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
