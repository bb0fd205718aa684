// What problems of elementwise recurrences mean to the engines of spec/lower.hpp and
// spec/problem_text.hpp.
#pragma once

#include <span>

#include <tessera/families/selective_scan/declaration.hpp>
#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/families/selective_scan/problem.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

template <>
struct operation_table<state_space_op> {
  using problem_type = state_space_problem;
  using kernel_args = selective_scan_kernel_args;
  static constexpr auto operations =
      std::span<const operation>(selective_scan_operations).first(state_space_ops.size());
};

template <>
struct operation_table<rwkv4_op> {
  using problem_type = rwkv4_problem;
  using kernel_args = selective_scan_kernel_args;
  static constexpr auto operations =
      std::span<const operation>(selective_scan_operations).subspan(state_space_ops.size());
};

}  // namespace tessera
