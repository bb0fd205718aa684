// What a planner says of the tiles of keys of a work tile, and of the order of work tiles.
#pragma once

#include <cstdint>

#include <tessera/prim/common/host_device.hpp>

namespace tessera::kernels::attention::sm90 {

/// Tiles of keys of the rows of a warpgroup or a block.
struct tile_range {
  int first = 0, last = 0;            ///< some row sees something of them
  int full_first = 0, full_last = 0;  ///< every row sees all of them
};

/// Keys [begin, end) that a row sees.
struct row_keys {
  int begin = 0, end = 0;
};

/// Mask functors whose kernels go from one shown tile to the next, and that the planner may ask
/// about the tiles of its work tile (tile_classes.hpp).
template <class Mask>
inline constexpr bool walks_shown_tiles = false;
/// Mask functors that the planner asks about tiles alone: all that rows of a warpgroup may see of a
/// tile is shown to them, or nothing is.
template <class Mask>
inline constexpr bool shows_whole_tiles = false;

/// Keys of rows that all see the first one, of few keys.
template <int Rows>
struct keys_from_first {
  std::uint16_t end[Rows];
  TESSERA_HD constexpr row_keys operator[](int row) const noexcept { return {0, end[row]}; }
};

/// How much the rows of a work tile see of 32 tiles of keys: bit i is of the i-th.
struct alignas(16) class_words {
  std::uint32_t some[3];        ///< some row of the warpgroup may see something
  std::uint32_t some_of_block;  ///< some row of the work tile
  std::uint32_t whole[3];  ///< every row of the warpgroup sees all, as far as its interval goes
  std::uint32_t unused;
};

/// Words that a planner leaves in shared memory, of calls with so many tiles of keys.
inline constexpr int near_words = 8;
struct walked_tiles {
  class_words words[near_words];
  int late;  ///< the next work tile is wanted once tiles of keys from here on are brought
};
struct no_walk {};

/// shows_whole_tiles: the tiles of keys that a work tile is shown, from the first to the last.
/// Ranges of its tiles are numbers of these, so that loops go over shown ones as dense rows go over
/// all of them.
struct listed_tiles {
  std::uint8_t listed[32 * near_words];
  std::uint32_t of_warpgroup[2][near_words];  ///< bit i of a word is of the i-th of 32 tiles
  int late;                                   ///< as of `walked_tiles`
  bool differ;                                ///< warpgroups are not shown the same

  /// True if the warpgroup is not shown a tile of keys of the list.
  TESSERA_HD constexpr bool hides_from(int warpgroup, int tile) const noexcept {
    return (of_warpgroup[warpgroup][tile / 32] >> tile % 32 & 1u) == 0;
  }
};

/// The last work tiles of a launch in the order in which blocks take them, where that is not their
/// own (sparse_attention/sm90/tile_order.hpp).
inline constexpr int most_sorted_tiles = 256, tile_ranks = 64;
struct tile_order {
  std::uint64_t is_there;                  ///< full once `tiles` are
  std::uint16_t tiles[most_sorted_tiles];  ///< behind the first of them
  std::uint16_t begin[tile_ranks + 1];     ///< of the work tiles of a rank; of none
  std::uint8_t ranks[most_sorted_tiles];   ///< of work tiles
};
struct own_order {};

}  // namespace tessera::kernels::attention::sm90
