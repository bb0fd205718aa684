// How much of a tile of rows and keys is seen by what the mask of blocks, the mask of pairs and a
// mask functor say: the same text on every target.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/families/sparse_attention/block_mask.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/visibility.hpp>

namespace tessera::kernels::sparse_attention {

template <class Mask>
inline constexpr bool is_functor = !std::is_same_v<Mask, prim::no_mask_functor>;

/// Whether nobody is asked about the pairs of a block.
TESSERA_HD constexpr bool is_whole(std::uint8_t shown) {
  return shown == static_cast<std::uint8_t>(block_shown::whole);
}

/// What the blocks of block_mask that a tile lies in show. Of no blocks: all of it, perhaps.
struct tile_blocks {
  bool some_shown = false, all_shown = true;
  bool some_whole = false, all_whole = true;

  TESSERA_HD constexpr void add(std::uint8_t shown) {
    some_shown = some_shown || shown != 0;
    all_shown = all_shown && shown != 0;
    some_whole = some_whole || is_whole(shown);
    all_whole = all_whole && is_whole(shown);
  }
  /// Where there is no block_mask.
  static TESSERA_HD constexpr tile_blocks without_mask() { return {true, true, false, false}; }

  /// How much is seen. What the mask of pairs hides is not looked at.
  template <class Mask>
  TESSERA_HD constexpr prim::tile_visibility seen(bool has_mask, const Mask& functor,
                                                  const prim::score_tile& tile) const {
    using enum prim::tile_visibility;
    if (!some_shown) return skip;
    if (all_whole) return full;
    bool all = all_shown && !has_mask;
    if constexpr (prim::classifies_tiles<Mask>) {
      const prim::tile_visibility of_functor = functor.classify(tile);
      if (of_functor == skip && !some_whole) return skip;
      all = all && of_functor == full;
    } else {
      all = all && !is_functor<Mask>;
    }
    return all ? full : partial;
  }
};

}  // namespace tessera::kernels::sparse_attention
