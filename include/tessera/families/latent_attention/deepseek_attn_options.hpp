// Options of deepseek_attn and its gradient, under the names that tools and files use.
#pragma once

#include <cstdint>
#include <optional>

namespace tessera {

/// Options of `deepseek_attn`.
struct deepseek_attn_options {
  /// Multiplies the sum of both products before everything else. Unset: 1 / sqrt(dn + dr), dr being
  /// 0 without k_pe. Must be finite.
  std::optional<double> softmax_scale{};
  /// Token i sees tokens up to itself.
  bool causal = false;
  /// Without indices: keys kept for each token, of all or, if causal, of those up to its own. At
  /// least 1.
  std::int64_t index_topk = 2048;
  /// Multiplies q_index.k_index. Only its sign changes which keys are kept. Unset: 1 / sqrt(Di).
  /// Must be finite.
  std::optional<double> index_scale{};
  /// Without indices: a token's own position is kept besides.
  bool force_self = false;
  /// Of selected keys, those that a token sees: so many before its own at most. Unset: all. What is
  /// selected does not depend on it, nor on all that follows.
  std::optional<std::int64_t> window_left{};
  /// So many behind its own at most. Unset: all.
  std::optional<std::int64_t> window_right{};
  /// cap * tanh(s / cap) of the logits of selected keys, before bias_post and mask. Must be
  /// positive.
  std::optional<double> logits_soft_cap{};
  /// Probability that a weight is dropped, 0 <= p < 1. Kept weights are multiplied by 1 / (1 - p).
  double dropout_probability = 0.0;
  /// Key of the Philox4x32-10 generator; see prim/common/dropout.hpp.
  std::uint64_t dropout_seed = 0;

  friend bool operator==(const deepseek_attn_options&, const deepseek_attn_options&) = default;
};

}  // namespace tessera
