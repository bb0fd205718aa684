// The operations on quantised weights, one list.
#pragma once

#include <array>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/families/quantized/problem.hpp>
#include <tessera/families/quantized/product_declaration.hpp>
#include <tessera/families/quantized/weight_declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

inline constexpr std::array quantized_operations =
    declared::joined(quantized_table::weight_operations, quantized_table::product_operations);

/// What its problems are to the engines.
template <>
struct operation_table<weight_op>
    : declared::operation_table_of<weight_problem, quantized_kernel_args, quantized_operations,
                                   quantized_table::weight_operations> {};
template <>
struct operation_table<quantized_matmul_op>
    : declared::operation_table_of<quantized_matmul_problem, quantized_kernel_args,
                                   quantized_operations, quantized_table::product_operations> {};

}  // namespace tessera
