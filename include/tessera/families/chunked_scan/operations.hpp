// Every operation of the family, whatever its tensors.
#pragma once

#include <tessera/families/chunked_scan/declaration.hpp>
#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/families/chunked_scan/problem.hpp>
#include <tessera/families/chunked_scan/rwkv6_args.hpp>
#include <tessera/families/chunked_scan/rwkv6_declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

/// In the order of their numbers: further ones come behind.
inline constexpr auto chunked_scan_operations =
    declared::joined(recurrent_table::operations, rwkv6_table::operations);

/// What its problems are to the engines.
template <>
struct operation_table<recurrent_op>
    : declared::operation_table_of<recurrent_problem, chunked_scan_kernel_args,
                                   chunked_scan_operations, recurrent_table::operations> {};
template <>
struct operation_table<rwkv6_op>
    : declared::operation_table_of<rwkv6_problem, chunked_scan_kernel_args, chunked_scan_operations,
                                   rwkv6_table::operations> {};

}  // namespace tessera
