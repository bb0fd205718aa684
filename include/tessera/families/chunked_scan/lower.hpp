// What problems of linear attention with decay mean to the engines of spec/lower.hpp and
// spec/problem_text.hpp.
#pragma once

#include <span>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/families/chunked_scan/operations.hpp>
#include <tessera/families/chunked_scan/problem.hpp>
#include <tessera/families/chunked_scan/rwkv6_args.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

template <>
struct operation_table<recurrent_op> {
  using problem_type = recurrent_problem;
  using kernel_args = chunked_scan_kernel_args;
  static constexpr auto operations =
      std::span<const operation>(chunked_scan_operations).first<recurrent_ops.size()>();
};
template <>
struct operation_table<rwkv6_op> {
  using problem_type = rwkv6_problem;
  using kernel_args = chunked_scan_kernel_args;
  static constexpr auto operations = std::span<const operation>(chunked_scan_operations)
                                         .subspan<recurrent_ops.size(), rwkv6_ops.size()>();
};

}  // namespace tessera
