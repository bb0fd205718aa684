// Every operation of the family of grouped matrix products, whatever its tensors.
#pragma once

#include <tessera/families/grouped_matmul/declaration.hpp>
#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/families/grouped_matmul/problem.hpp>
#include <tessera/families/grouped_matmul/scaled_args.hpp>
#include <tessera/families/grouped_matmul/scaled_declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

/// In the order of their numbers: further ones come behind.
inline constexpr auto grouped_matmul_operations =
    declared::joined(grouped_matmul_table::operations, scaled_matmul_table::operations);

/// What its problems are to the engines.
template <>
struct operation_table<grouped_matmul_op>
    : declared::operation_table_of<grouped_matmul_problem, grouped_matmul_kernel_args,
                                   grouped_matmul_operations, grouped_matmul_table::operations> {};
template <>
struct operation_table<scaled_matmul_op>
    : declared::operation_table_of<scaled_matmul_problem, grouped_matmul_kernel_args,
                                   grouped_matmul_operations, scaled_matmul_table::operations> {};

}  // namespace tessera
