// Options of a selection of blocks, under the names that tools and files use.
#pragma once

#include <cstdint>
#include <optional>

namespace tessera {

struct block_selection_options {
  /// Multiplies q.k before everything else. Unset: 1 / sqrt(D). Must be finite.
  std::optional<double> softmax_scale{};
  /// Tokens of a block. At least 1.
  std::int64_t block_size = 64;
  /// Blocks selected for each token and key/value head, those that are selected whatever their
  /// weight among them.
  std::int64_t block_count = 16;
  /// The first blocks of a sequence that every token selects.
  std::int64_t first_blocks = 0;
  /// The last blocks up to a token's own that it selects. At least 1: its own.
  std::int64_t last_blocks = 1;

  friend bool operator==(const block_selection_options&, const block_selection_options&) = default;
};

}  // namespace tessera
