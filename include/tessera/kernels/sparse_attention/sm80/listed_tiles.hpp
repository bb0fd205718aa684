// The tile iterator of the dense kernels over a list of blocks: before the first tile, the threads
// of a block ask about all tiles side by side, and then go from one that is seen to the next.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm80/score_mod.hpp>
#include <tessera/kernels/attention/sm80/tile_iterator.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/work_tile.hpp>
#include <tessera/kernels/sparse_attention/sm80/pair_scores.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

template <class Traits, kernels::sparse_attention::sm80::says_who_is_seen Pairs>
class tile_iterator<Traits, kernels::sparse_attention::sm80::blocksparse_hooks<Pairs>> {
  using hooks_type = kernels::sparse_attention::sm80::blocksparse_hooks<Pairs>;

 public:
  static constexpr bool visits_all = false;
  using bits_type = tile_bits;

  __device__ __forceinline__ tile_iterator(const launch_args& args, const hooks_type& hooks,
                                           const work_tile& work, const key_range& keys,
                                           bits_type& bits)
      : args_(args), hooks_(hooks), work_(work), keys_(keys), bits_(bits) {}

  /// Before the first tile of a pass over the keys: a lane looks at one tile.
  __device__ __forceinline__ void begin() {
    const row_box box = box_of(args_, work_);
    const int words = (known_tiles() + 31) / 32;
#pragma unroll 1
    for (int word = static_cast<int>(threadIdx.x) / prim::cuda::warp_size; word < words;
         word += Traits::warps) {
      const int tile =
          keys_.first_tile + word * 32 + static_cast<int>(threadIdx.x % prim::cuda::warp_size);
      const prim::tile_visibility seen =
          tile < keys_.last_tile ? look_at(box, tile) : prim::tile_visibility::skip;
      const std::uint32_t some =
          __ballot_sync(prim::cuda::all_lanes, seen != prim::tile_visibility::skip);
      const std::uint32_t whole =
          __ballot_sync(prim::cuda::all_lanes, seen == prim::tile_visibility::full);
      if (threadIdx.x % prim::cuda::warp_size == 0) {
        bits_.some[word] = some;
        bits_.whole[word] = whole;
      }
    }
    __syncthreads();
  }

  /// The first tile from `tile` on that some row of the block sees.
  __device__ __forceinline__ key_tile next(int tile) const {
    const int known = known_tiles();
    for (int at = tile - keys_.first_tile; at < known; at = at / 32 * 32 + 32) {
      const std::uint32_t left = bits_.some[at / 32] >> at % 32;
      if (left == 0) continue;
      at += __ffs(static_cast<int>(left)) - 1;
      return {keys_.first_tile + at, (bits_.whole[at / 32] >> at % 32 & 1u) != 0};
    }
    tile = max(tile, keys_.first_tile + known);
    if (tile < keys_.last_tile) {
      const row_box box = box_of(args_, work_);
      for (; tile < keys_.last_tile; ++tile) {
        if (look_at(box, tile) != prim::tile_visibility::skip) return {tile, false};
      }
    }
    return {tile, true};
  }

 private:
  /// Tiles whose bits are known.
  __device__ __forceinline__ int known_tiles() const {
    return min(tile_bits::tiles, keys_.last_tile - keys_.first_tile);
  }
  __device__ __forceinline__ prim::tile_visibility look_at(const row_box& box, int tile) const {
    return hooks_.mask.classify(prim::score_tile{
        work_.seq.index, box.head_begin, box.head_end, box.query_begin, box.query_end,
        tile * Traits::block_kv, min(keys_.end, (tile + 1) * Traits::block_kv)});
  }

  const launch_args& args_;
  const hooks_type& hooks_;
  const work_tile& work_;
  const key_range& keys_;
  bits_type& bits_;
};

}  // namespace tessera::kernels::attention::sm80
