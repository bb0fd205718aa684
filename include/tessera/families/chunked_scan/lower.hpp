// What problems of linear attention with decay mean to the engines of spec/lower.hpp and
// spec/problem_text.hpp.
#pragma once

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/families/chunked_scan/operations.hpp>
#include <tessera/families/chunked_scan/problem.hpp>
#include <tessera/families/chunked_scan/rwkv6_args.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

template <>
struct operation_table<recurrent_op>
    : declared::operation_table_of<recurrent_problem, chunked_scan_kernel_args,
                                   chunked_scan_operations, recurrent_table::operations> {};
template <>
struct operation_table<rwkv6_op>
    : declared::operation_table_of<rwkv6_problem, chunked_scan_kernel_args, chunked_scan_operations,
                                   rwkv6_table::operations> {};

}  // namespace tessera
