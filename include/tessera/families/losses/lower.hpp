// What problems of fused losses mean to the engines of spec/lower.hpp and spec/problem_text.hpp.
#pragma once

#include <span>

#include <tessera/families/losses/declaration.hpp>
#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/families/losses/problem.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

template <>
struct operation_table<cross_entropy_op> {
  using problem_type = cross_entropy_problem;
  using kernel_args = losses_kernel_args;
  static constexpr auto operations =
      std::span<const operation>(losses_operations).first(cross_entropy_ops.size());
};

template <>
struct operation_table<kl_divergence_op> {
  using problem_type = kl_divergence_problem;
  using kernel_args = losses_kernel_args;
  static constexpr auto operations =
      std::span<const operation>(losses_operations)
          .subspan(cross_entropy_ops.size(), kl_divergence_ops.size());
};

template <>
struct operation_table<linear_cross_entropy_op> {
  using problem_type = linear_cross_entropy_problem;
  using kernel_args = losses_kernel_args;
  static constexpr auto operations =
      std::span<const operation>(losses_operations)
          .subspan(cross_entropy_ops.size() + kl_divergence_ops.size());
};

}  // namespace tessera
