// What is asked of fused losses at run time: dtypes, sizes and options, no pointers. Plain data.
#pragma once

#include <cstdint>

#include <tessera/families/losses/config.hpp>
#include <tessera/families/losses/cross_entropy_args.hpp>
#include <tessera/families/losses/cross_entropy_options.hpp>
#include <tessera/families/losses/kl_divergence_args.hpp>
#include <tessera/families/losses/kl_divergence_options.hpp>
#include <tessera/families/losses/linear_cross_entropy_args.hpp>
#include <tessera/families/losses/linear_cross_entropy_options.hpp>
#include <tessera/spec/problem_of.hpp>

namespace tessera {

enum class cross_entropy_op : std::uint8_t { fused_cross_entropy, fused_cross_entropy_backward };

constexpr loss_pass pass_of(cross_entropy_op op) noexcept {
  return op == cross_entropy_op::fused_cross_entropy ? loss_pass::forward : loss_pass::backward;
}

/// A call of one of them without its memory.
using cross_entropy_problem =
    basic_problem<cross_entropy_op, cross_entropy_args, cross_entropy_options>;

/// See spec/problem_of.hpp.
cross_entropy_problem problem_type(const cross_entropy_args&);

enum class kl_divergence_op : std::uint8_t { fused_kl_divergence, fused_kl_divergence_backward };

constexpr loss_pass pass_of(kl_divergence_op op) noexcept {
  return op == kl_divergence_op::fused_kl_divergence ? loss_pass::forward : loss_pass::backward;
}

/// A call of one of them without its memory.
using kl_divergence_problem =
    basic_problem<kl_divergence_op, kl_divergence_args, kl_divergence_options>;

kl_divergence_problem problem_type(const kl_divergence_args&);

enum class linear_cross_entropy_op : std::uint8_t {
  fused_linear_cross_entropy,
  fused_linear_cross_entropy_backward,
};

constexpr loss_pass pass_of(linear_cross_entropy_op op) noexcept {
  return op == linear_cross_entropy_op::fused_linear_cross_entropy ? loss_pass::forward
                                                                   : loss_pass::backward;
}

/// A call of one of them without its memory.
using linear_cross_entropy_problem =
    basic_problem<linear_cross_entropy_op, linear_cross_entropy_args, linear_cross_entropy_options>;

linear_cross_entropy_problem problem_type(const linear_cross_entropy_args&);
inline bool rows_are_unaligned(const linear_cross_entropy_args& args) noexcept {
  return are_unaligned(args.lm_head_weight);
}

}  // namespace tessera
