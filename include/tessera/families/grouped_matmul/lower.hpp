// What grouped matmul problems mean to the engines of spec/lower.hpp and spec/problem_text.hpp.
#pragma once

#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/families/grouped_matmul/operations.hpp>
#include <tessera/families/grouped_matmul/problem.hpp>
#include <tessera/families/grouped_matmul/scaled_args.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

template <>
struct operation_table<grouped_matmul_op>
    : declared::operation_table_of<grouped_matmul_problem, grouped_matmul_kernel_args,
                                   grouped_matmul_operations, grouped_matmul_table::operations> {};
template <>
struct operation_table<scaled_matmul_op>
    : declared::operation_table_of<scaled_matmul_problem, grouped_matmul_kernel_args,
                                   grouped_matmul_operations, scaled_matmul_table::operations> {};

}  // namespace tessera
