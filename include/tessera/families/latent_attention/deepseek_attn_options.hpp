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
  /// Without indices: keys kept for each token, of those that it sees. At least 1.
  std::int64_t index_topk = 2048;
  /// Multiplies q_index.k_index. Only its sign changes which keys are kept. Unset: 1 / sqrt(Di).
  /// Must be finite.
  std::optional<double> index_scale{};
  /// Without indices: a token's own position is kept besides.
  bool force_self = false;
  /// cap * tanh(s / cap) of the logits of selected keys, not of the indexer. Must be positive.
  std::optional<double> logits_soft_cap{};

  friend bool operator==(const deepseek_attn_options&, const deepseek_attn_options&) = default;
};

}  // namespace tessera
