// What is asked of flash attention at run time: dtypes, sizes and options, no pointers. Plain data.
#pragma once

#include <cstdint>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/options.hpp>
#include <tessera/spec/problem.hpp>

namespace tessera {

/// Operations served by the flash attention forward family.
enum class flash_op : std::uint8_t { flash_attention, attention, scaled_dot_product_attention };

constexpr std::string_view name_of(flash_op op) noexcept {
  switch (op) {
    case flash_op::flash_attention:
      return "flash_attention";
    case flash_op::attention:
      return "attention";
    case flash_op::scaled_dot_product_attention:
      return "scaled_dot_product_attention";
  }
  return "invalid";
}

/// A call of one of them without its memory. Optional outputs matter only where they change the
/// work: `weights`.
using flash_problem = basic_problem<flash_op, flash_attention_args, flash_attention_options>;

/// The shapes and options of a call. Copies; validates nothing.
inline flash_problem problem_of(const flash_attention_args& args,
                                const flash_attention_options& options = {},
                                flash_op op = flash_op::flash_attention) noexcept {
  return {.op = op,
          .tensors = args,
          .unaligned = are_unaligned(args.q, args.k, args.v),
          .options = options};
}

}  // namespace tessera
