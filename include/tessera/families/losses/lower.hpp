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

}  // namespace tessera
