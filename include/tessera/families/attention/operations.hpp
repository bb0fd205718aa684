// Every operation of the attention family, whatever its tensors.
#pragma once

#include <tessera/families/attention/declaration.hpp>
#include <tessera/families/attention/fp8_declaration.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/page_declaration.hpp>
#include <tessera/families/attention/ragged_decode_declaration.hpp>
#include <tessera/families/attention/ragged_page_declaration.hpp>
#include <tessera/families/attention/unified_declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

/// In the order of their numbers: further ones come behind.
inline constexpr auto attention_operations = declared::joined(
    attention_table::operations, paged_table::operations, ragged_decode_table::operations,
    unified_table::operations, ragged_page_table::operations, fp8_table::operations);

/// What its problems are to the engines.
template <>
struct operation_table<flash_op>
    : declared::operation_table_of<flash_problem, attention_kernel_args, attention_operations,
                                   attention_table::operations> {};
template <>
struct operation_table<page_op>
    : declared::operation_table_of<page_problem, attention_kernel_args, attention_operations,
                                   paged_table::operations> {};
template <>
struct operation_table<ragged_decode_op>
    : declared::operation_table_of<ragged_decode_problem, attention_kernel_args,
                                   attention_operations, ragged_decode_table::operations> {};
template <>
struct operation_table<unified_op>
    : declared::operation_table_of<unified_problem, attention_kernel_args, attention_operations,
                                   unified_table::operations> {};
template <>
struct operation_table<ragged_page_op>
    : declared::operation_table_of<ragged_page_problem, attention_kernel_args, attention_operations,
                                   ragged_page_table::operations> {};
template <>
struct operation_table<fp8_op>
    : declared::operation_table_of<fp8_problem, attention_kernel_args, attention_operations,
                                   fp8_table::operations> {};

}  // namespace tessera
