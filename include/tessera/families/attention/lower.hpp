// What attention problems mean to the engines of spec/lower.hpp and spec/problem_text.hpp.
#pragma once

#include <span>

#include <tessera/families/attention/declaration.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/page_declaration.hpp>
#include <tessera/families/attention/problem.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

template <>
struct operation_table<flash_op> {
  using problem_type = flash_problem;
  using kernel_args = attention_kernel_args;
  static constexpr auto operations =
      std::span<const operation>(attention_operations).first(attention_table::operations.size());
};

template <>
struct operation_table<page_op> {
  using problem_type = page_problem;
  using kernel_args = attention_kernel_args;
  static constexpr auto operations =
      std::span<const operation>(attention_operations).subspan(attention_table::operations.size());
};

}  // namespace tessera
