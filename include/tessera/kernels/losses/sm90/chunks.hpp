// How many classes of a linear cross entropy come and go together.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/prim/common/ceil_div.hpp>

namespace tessera::kernels::losses::sm90 {

using prim::ceil_div;

/// Columns of a tile of logits; classes of a chunk are whole tiles.
inline constexpr int tile_columns = 256;

struct linear_sizes {
  std::int64_t tokens = 0, columns = 0, classes = 0;
};

struct class_chunks {
  std::int64_t of_sums = tile_columns;       ///< whose tiles have sums together
  std::int64_t of_gradients = tile_columns;  ///< whose gradients are there together

  /// Sums of 64 MiB and gradients of 84 MiB at most, or one column of tiles.
  static class_chunks of(const linear_sizes& sizes, int multiprocessors) {
    constexpr std::int64_t most_sums = 8 << 20, most_gradients = 42 << 20;
    const std::int64_t tokens = std::max<std::int64_t>(sizes.tokens, 1);
    const std::int64_t all = ceil_div(sizes.classes, tile_columns);
    const auto most = [&](std::int64_t fitting) {
      return std::clamp<std::int64_t>(fitting, 1, std::max<std::int64_t>(all, 1));
    };
    const std::int64_t most_tiles = most(most_gradients / tokens / tile_columns);
    std::int64_t best = most_tiles;
    double least = cost(sizes, best, multiprocessors);
    for (std::int64_t tiles = most_tiles - 1; 2 * tiles >= most_tiles && tiles > 0; --tiles) {
      const double costs = cost(sizes, tiles, multiprocessors);
      if (costs < least) least = costs, best = tiles;
    }
    return {most(most_sums / tokens) * tile_columns, best * tile_columns};
  }

 private:
  /// Of chunks of so many tiles: rounds of tiles on all multiprocessors, times what each multiplies
  /// and does beside. Rounds that are not full are what chunks differ in.
  static double cost(const linear_sizes& sizes, std::int64_t tiles, int multiprocessors) {
    constexpr std::int64_t rows = 256;            // of a pair of blocks
    constexpr double beside = 250, adding = 700;  // as much as so many elements of a sum
    const std::int64_t pairs = std::max(multiprocessors / 2, 1);
    const std::int64_t high = ceil_div(sizes.tokens, rows);
    const std::int64_t tall = ceil_div(sizes.columns, rows);
    const std::int64_t all = ceil_div(sizes.classes, tile_columns);
    const auto of_chunk = [&](std::int64_t wide) {
      const auto rounds = [&](std::int64_t some) {
        return static_cast<double>(ceil_div(some, pairs));
      };
      return rounds(high * wide) * (static_cast<double>(sizes.columns) + beside) +
             rounds(tall * wide) * (static_cast<double>(sizes.tokens) + beside) +
             rounds(high * ceil_div(sizes.columns, tile_columns)) *
                 (static_cast<double>(wide * tile_columns) + adding);
    };
    const std::int64_t whole_chunks = all / tiles, rest = all % tiles;
    return static_cast<double>(whole_chunks) * of_chunk(tiles) + (rest > 0 ? of_chunk(rest) : 0);
  }
};

}  // namespace tessera::kernels::losses::sm90
