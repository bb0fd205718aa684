// Validates the options of an attention call and turns them into the scalars of a launch.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/options.hpp>
#include <tessera/families/attention/problem.hpp>
#include <tessera/spec/tensor_checks.hpp>

namespace tessera::checks {

/// A double that is finite as a float.
inline bool is_finite_float(double value) noexcept {
  return std::abs(value) <= static_cast<double>(std::numeric_limits<float>::max());
}

/// Dropped iff a 32-bit random word is below this: ceil(p * 2^32), exact in double.
inline std::uint64_t dropout_threshold(double probability) noexcept {
  return static_cast<std::uint64_t>(std::ceil(probability * 0x1p32));
}

inline bool is_window(std::string_view name, const std::optional<std::int64_t>& side,
                      status& failure) {
  if (!side || *side >= 0) return true;
  return refuse(failure, name, ": is ", *side, ", must be at least 0 (unset is unbounded)");
}

/// What scaled_dot_product_attention leaves out.
inline bool are_plain_options(const flash_attention_options& options, status& failure) {
  constexpr std::string_view op = name_of(flash_op::scaled_dot_product_attention);
  if (options.logits_soft_cap) {
    return refuse(failure, "logits_soft_cap: is ", *options.logits_soft_cap, ", ", op,
                  " has no soft cap");
  }
  if (options.dropout_probability > 0) {
    return refuse(failure, "dropout_probability: is ", options.dropout_probability, ", ", op,
                  " has no dropout");
  }
  if (!options.normalize) {
    return refuse(failure, "normalize: is false, ", op, " always normalizes");
  }
  return true;
}

/// Each option in its range.
inline bool are_options(flash_op op, const flash_attention_options& options, status& failure) {
  if (op > flash_op::scaled_dot_product_attention) {
    return refuse(failure, "op: is ", static_cast<int>(op), ", the last operation is ",
                  static_cast<int>(flash_op::scaled_dot_product_attention));
  }
  if (options.softmax_scale && !is_finite_float(*options.softmax_scale)) {
    return refuse(failure, "softmax_scale: is ", *options.softmax_scale,
                  ", must be finite as a float (at most 3.4e38)");
  }
  if (options.causal_alignment > alignment::top_left) {
    return refuse(failure, "causal_alignment: is ", static_cast<int>(options.causal_alignment),
                  ", the last alignment is ", static_cast<int>(alignment::top_left));
  }
  if (!is_window("window_left", options.window_left, failure) ||
      !is_window("window_right", options.window_right, failure)) {
    return false;
  }
  if (options.logits_soft_cap && !(is_finite_float(*options.logits_soft_cap) &&
                                   static_cast<float>(*options.logits_soft_cap) > 0.0f)) {
    return refuse(failure, "logits_soft_cap: is ", *options.logits_soft_cap,
                  ", must be above 0 and finite as a float");
  }
  const double p = options.dropout_probability;
  if (!(p >= 0.0 && p < 1.0)) {
    return refuse(failure, "dropout_probability: is ", p, ", must be at least 0 and below 1");
  }
  using threshold = decltype(attention_kernel_args::dropout_threshold);
  if (dropout_threshold(p) > std::numeric_limits<threshold>::max()) {
    return refuse(failure, "dropout_probability: is ", p,
                  ", must be at most 1 - 2^-32 = ", 1 - 0x1p-32);
  }
  return op != flash_op::scaled_dot_product_attention || are_plain_options(options, failure);
}

/// The scalars of a launch; the options have been checked.
inline void fill_options(const flash_attention_options& options, int head_dim,
                         attention_kernel_args& lowered) noexcept {
  lowered.softmax_scale =
      static_cast<float>(options.softmax_scale ? *options.softmax_scale
                                               : 1.0 / std::sqrt(static_cast<double>(head_dim)));
  lowered.causal = options.causal;
  lowered.top_left = options.causal_alignment == alignment::top_left;
  lowered.window_left = options.window_left.value_or(unbounded);
  lowered.window_right = options.window_right.value_or(unbounded);
  lowered.soft_cap = static_cast<float>(options.logits_soft_cap.value_or(0.0));
  lowered.normalize = options.normalize;
  lowered.dropout = options.dropout_probability > 0.0;
  lowered.dropout_threshold = static_cast<decltype(lowered.dropout_threshold)>(
      dropout_threshold(options.dropout_probability));
  lowered.dropout_scale = static_cast<float>(1.0 / (1.0 - options.dropout_probability));
  lowered.dropout_seed = options.dropout_seed;
}

}  // namespace tessera::checks
