// What problems of quantised weights mean to the engines of spec/lower.hpp and
// spec/problem_text.hpp.
#pragma once

#include <tessera/families/quantized/declaration.hpp>
#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/families/quantized/problem.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

template <>
struct operation_table<weight_op>
    : declared::operation_table_of<weight_problem, quantized_kernel_args, quantized_operations,
                                   quantized_table::weight_operations> {};
template <>
struct operation_table<quantized_matmul_op>
    : declared::operation_table_of<quantized_matmul_problem, quantized_kernel_args,
                                   quantized_operations, quantized_table::product_operations> {};

}  // namespace tessera
