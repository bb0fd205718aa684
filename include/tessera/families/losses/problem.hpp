// What is asked of fused losses at run time: dtypes, sizes and options, no pointers. Plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/families/losses/config.hpp>
#include <tessera/families/losses/cross_entropy_args.hpp>
#include <tessera/families/losses/cross_entropy_options.hpp>
#include <tessera/spec/problem.hpp>

namespace tessera {

enum class cross_entropy_op : std::uint8_t { fused_cross_entropy, fused_cross_entropy_backward };

/// Their names, in the order of the enumerators.
inline constexpr std::array<std::string_view, 2> cross_entropy_ops{"fused_cross_entropy",
                                                                   "fused_cross_entropy_backward"};

constexpr std::string_view name_of(cross_entropy_op op) noexcept {
  const auto index = static_cast<std::size_t>(op);
  return index < cross_entropy_ops.size() ? cross_entropy_ops[index] : "invalid";
}

constexpr loss_pass pass_of(cross_entropy_op op) noexcept {
  return op == cross_entropy_op::fused_cross_entropy ? loss_pass::forward : loss_pass::backward;
}

/// A call of one of them without its memory.
using cross_entropy_problem =
    basic_problem<cross_entropy_op, cross_entropy_args, cross_entropy_options>;

/// The shapes and options of a call. Copies; validates nothing.
constexpr cross_entropy_problem problem_of(
    const cross_entropy_args& args, const cross_entropy_options& options = {},
    cross_entropy_op op = cross_entropy_op::fused_cross_entropy) noexcept {
  return {.op = op, .tensors = args, .options = options};
}

}  // namespace tessera
