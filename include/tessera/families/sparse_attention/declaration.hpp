// Every operation of the sparse attention family, whatever its tensors.
#pragma once

#include <tessera/families/sparse_attention/block_selection_declaration.hpp>
#include <tessera/families/sparse_attention/blocksparse_declaration.hpp>
#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/families/sparse_attention/native_sparse_declaration.hpp>
#include <tessera/families/sparse_attention/problem.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

/// In the order of their numbers: further ones come behind.
inline constexpr auto sparse_attention_operations =
    declared::joined(blocksparse_table::operations, blocksparse_table::backward_operations,
                     native_sparse_table::operations, native_sparse_table::backward_operations,
                     block_selection_table::operations);

/// What its problems are to the engines.
template <>
struct operation_table<blocksparse_op>
    : declared::operation_table_of<blocksparse_problem, sparse_attention_kernel_args,
                                   sparse_attention_operations, blocksparse_table::operations> {};
template <>
struct operation_table<blocksparse_backward_op>
    : declared::operation_table_of<blocksparse_backward_problem, sparse_attention_kernel_args,
                                   sparse_attention_operations,
                                   blocksparse_table::backward_operations> {};
template <>
struct operation_table<native_sparse_op>
    : declared::operation_table_of<native_sparse_problem, sparse_attention_kernel_args,
                                   sparse_attention_operations, native_sparse_table::operations> {};
template <>
struct operation_table<native_sparse_backward_op>
    : declared::operation_table_of<native_sparse_backward_problem, sparse_attention_kernel_args,
                                   sparse_attention_operations,
                                   native_sparse_table::backward_operations> {};
template <>
struct operation_table<block_selection_op>
    : declared::operation_table_of<block_selection_problem, sparse_attention_kernel_args,
                                   sparse_attention_operations, block_selection_table::operations> {
};

}  // namespace tessera
