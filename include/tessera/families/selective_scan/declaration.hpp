// Every operation of the family of elementwise recurrences, whatever its tensors.
#pragma once

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/families/selective_scan/problem.hpp>
#include <tessera/families/selective_scan/rwkv4_declaration.hpp>
#include <tessera/families/selective_scan/state_space_declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

/// In the order of their numbers: further ones come behind.
inline constexpr auto selective_scan_operations =
    declared::joined(state_space_table::operations, rwkv4_table::operations);

/// What its problems are to the engines.
template <>
struct operation_table<state_space_op>
    : declared::operation_table_of<state_space_problem, selective_scan_kernel_args,
                                   selective_scan_operations, state_space_table::operations> {};
template <>
struct operation_table<rwkv4_op>
    : declared::operation_table_of<rwkv4_problem, selective_scan_kernel_args,
                                   selective_scan_operations, rwkv4_table::operations> {};

}  // namespace tessera
