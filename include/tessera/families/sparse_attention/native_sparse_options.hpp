// Options of native sparse attention, under the names that tools and files use.
#pragma once

#include <cstdint>
#include <optional>

namespace tessera {

struct native_sparse_attention_options {
  /// Multiplies q.k before everything else. Unset: 1 / sqrt(D). Must be finite.
  std::optional<double> softmax_scale{};
  /// Tokens of a block. At least 1.
  std::int64_t block_size = 64;
  /// Without block_indices: blocks selected for each token and key/value head, its own among them.
  std::int64_t block_count = 16;
  /// Of the branch that g_swa gates: tokens in front of a token's own that it sees. Unset: all.
  std::optional<std::int64_t> window_left{};

  friend bool operator==(const native_sparse_attention_options&,
                         const native_sparse_attention_options&) = default;
};

}  // namespace tessera
