// What problems of elementwise recurrences mean to the engines of spec/lower.hpp and
// spec/problem_text.hpp.
#pragma once

#include <tessera/families/selective_scan/declaration.hpp>
#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/families/selective_scan/problem.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

template <>
struct operation_table<state_space_op>
    : declared::operation_table_of<state_space_problem, selective_scan_kernel_args,
                                   selective_scan_operations, state_space_table::operations> {};
template <>
struct operation_table<rwkv4_op>
    : declared::operation_table_of<rwkv4_problem, selective_scan_kernel_args,
                                   selective_scan_operations, rwkv4_table::operations> {};

}  // namespace tessera
