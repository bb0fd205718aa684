// What sparse attention problems mean to the engines of spec/lower.hpp and spec/problem_text.hpp.
#pragma once

#include <cstddef>

#include <tessera/families/sparse_attention/declaration.hpp>
#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/families/sparse_attention/problem.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

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

}  // namespace tessera
