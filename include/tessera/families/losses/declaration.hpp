// Every operation of the family of fused losses, whatever its tensors.
#pragma once

#include <tessera/families/losses/cross_entropy_declaration.hpp>
#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/families/losses/kl_divergence_declaration.hpp>
#include <tessera/families/losses/linear_cross_entropy_declaration.hpp>
#include <tessera/families/losses/problem.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

/// In the order of their numbers: further ones come behind.
inline constexpr auto losses_operations =
    declared::joined(cross_entropy_table::operations, kl_divergence_table::operations,
                     linear_cross_entropy_table::operations);

/// What its problems are to the engines.
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
