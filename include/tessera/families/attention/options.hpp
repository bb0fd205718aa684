// Options of the attention operations, under the names that tools and files use.
#pragma once

#include <cstdint>
#include <optional>

namespace tessera {

/// Which corner of the score matrix the causal diagonal (and the window) is aligned to when the
/// query and key lengths differ.
enum class alignment : std::uint8_t {
  bottom_right,  ///< row i sits at key position i + (Sk - Sq): the last row sees the last key
  top_left,      ///< row i sits at key position i
};

/// Options of `flash_attention` and `attention`. Defaults in the declarations.
struct flash_attention_options {
  /// Multiplies q.k before everything else. Unset: 1 / sqrt(D). Must be finite.
  std::optional<double> softmax_scale{};
  /// Row i sees keys up to its aligned position.
  bool causal = false;
  alignment causal_alignment = alignment::bottom_right;
  /// Keys before the aligned position that are visible, itself excluded. Unset: unbounded.
  std::optional<std::int64_t> window_left{};
  /// Keys after the aligned position that are visible. Unset: unbounded.
  std::optional<std::int64_t> window_right{};
  /// cap * tanh(s / cap) after `bias_pre`, before `bias_post` and masks. Must be positive.
  std::optional<double> logits_soft_cap{};
  /// Probability that a weight is dropped, 0 <= p < 1. Kept weights are multiplied by 1 / (1 - p).
  double dropout_probability = 0.0;
  /// Key of the Philox4x32-10 generator; see prim/common/dropout.hpp.
  std::uint64_t dropout_seed = 0;
  /// False: out = sum exp(s - row_max) v, not divided by the denominator; see `row_max`.
  bool normalize = true;

  friend bool operator==(const flash_attention_options&, const flash_attention_options&) = default;
};

/// Window options for "the last `tokens` tokens, itself included", as serving engines count.
/// `tokens` is at least 1; less gives a window that every operation refuses.
constexpr flash_attention_options last_tokens_window(flash_attention_options options,
                                                     std::int64_t tokens) noexcept {
  options.window_left = tokens > 0 ? tokens - 1 : -1;
  options.window_right = 0;
  return options;
}

}  // namespace tessera
