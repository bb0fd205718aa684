// What problems of fused losses mean to the engines of spec/lower.hpp and spec/problem_text.hpp.
#pragma once

#include <tessera/families/losses/declaration.hpp>
#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/families/losses/problem.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

template <>
struct operation_table<cross_entropy_op>
    : declared::operation_table_of<cross_entropy_problem, losses_kernel_args, losses_operations,
                                   cross_entropy_table::operations> {};
template <>
struct operation_table<kl_divergence_op>
    : declared::operation_table_of<kl_divergence_problem, losses_kernel_args, losses_operations,
                                   kl_divergence_table::operations> {};
template <>
struct operation_table<linear_cross_entropy_op>
    : declared::operation_table_of<linear_cross_entropy_problem, losses_kernel_args,
                                   losses_operations, linear_cross_entropy_table::operations> {};

}  // namespace tessera
