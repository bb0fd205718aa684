// Options of blocksparse attention, under the names that tools and files use.
#pragma once

#include <cstdint>
#include <optional>

#include <tessera/families/attention/options.hpp>

namespace tessera {

/// A pair of query and key is visible if everything that is given allows it.
struct blocksparse_attention_options {
  /// Multiplies q.k before everything else. Unset: 1 / sqrt(D). Must be finite.
  std::optional<double> softmax_scale{};
  /// A query sees keys up to its own position.
  bool causal = false;
  /// Where rows and keys stand that have no positions given.
  alignment causal_alignment = alignment::bottom_right;
  /// Positions before and behind the query's own that it sees. Unset: unbounded.
  std::optional<std::int64_t> window_left{};
  std::optional<std::int64_t> window_right{};
  /// cap * tanh(s / cap). Must be positive.
  std::optional<double> logits_soft_cap{};
  /// Positions are cut into chunks of so many, which do not see each other. Unset: one chunk.
  std::optional<std::int64_t> chunk_size{};
  /// Rows and keys of a block of block_mask.
  std::int64_t block_q = 64;
  std::int64_t block_k = 64;

  friend bool operator==(const blocksparse_attention_options&,
                         const blocksparse_attention_options&) = default;
};

}  // namespace tessera
