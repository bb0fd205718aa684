// How tokens and classes are cut on the CPU: kernels and cost ask here. Sizes alone decide, so that
// no bit depends on threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/spec/backend.hpp>

namespace tessera::losses_schedule {

/// Classes of a block: its logits stay in the first-level cache while several sums run over them.
inline constexpr std::int64_t block_classes = 2048;

/// Tokens of a work item: enough logits that taking it costs nothing.
constexpr std::int64_t rows_of_item(std::int64_t classes) noexcept {
  return std::clamp<std::int64_t>(32768 / std::max<std::int64_t>(classes, 1), 1, 64);
}

// Logits that are a product come in tiles: so many tokens read the weight together, and a tile, a
// block of the weight and what is multiplied by it lie in the second-level cache.
inline constexpr int tile_tokens = 96;
inline constexpr int tile_classes = 128;
inline constexpr int tile_depth = 256;  ///< of hidden rows in a product at a time

/// Rows of the register tile of a product; its columns are two registers.
constexpr int register_rows(backend target) noexcept {
  if (target == backend::cpu_generic) return 4;
  return target == backend::cpu_avx2 ? 6 : 14;
}

}  // namespace tessera::losses_schedule
