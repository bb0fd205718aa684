// Options of flash_mla and its gradient, under the names that tools and files use.
#pragma once

#include <cstdint>
#include <optional>

namespace tessera {

/// Options of `flash_mla`.
struct flash_mla_options {
  /// Multiplies the sum of both products before everything else. Unset: 1 / sqrt(dn + dr), dr being
  /// 0 without k_pe. Must be finite.
  std::optional<double> softmax_scale{};
  /// Token i sees tokens up to itself.
  bool causal = false;
  /// Tokens before its own that a token sees. Unset: all.
  std::optional<std::int64_t> window_left{};
  /// Tokens behind its own that a token sees. Unset: all.
  std::optional<std::int64_t> window_right{};
  /// cap * tanh(s / cap) before bias_post and mask. Must be positive.
  std::optional<double> logits_soft_cap{};
  /// Probability that a weight is dropped, 0 <= p < 1. Kept weights are multiplied by 1 / (1 - p).
  double dropout_probability = 0.0;
  /// Key of the Philox4x32-10 generator; see prim/common/dropout.hpp.
  std::uint64_t dropout_seed = 0;

  friend bool operator==(const flash_mla_options&, const flash_mla_options&) = default;
};

}  // namespace tessera
