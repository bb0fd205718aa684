// Which tiles of keys a block of rows need not look at, or need not look at element by element,
// because of a mask tensor, segments or a mask functor. Causal masks, windows and lengths are
// intervals of keys (sm80_block.hpp).
#pragma once

#include <cstdint>

#include <tessera/kernels/flash_attention/sm80_block.hpp>
#include <tessera/kernels/flash_attention/sm80_traits.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::flash::sm80 {

/// Bits of the first `tiles` tiles of keys of a block, in shared memory. Later ones are looked at
/// element by element.
struct mask_window {
  static constexpr int tiles = 4096;
  std::uint32_t some[tiles / 32];   ///< the mask shows something of the tile to some row
  std::uint32_t whole[tiles / 32];  ///< and everything to every row
};
struct no_mask_window {};

/// A tile of keys; `tile` is that behind the last if there is none.
struct chosen_tile {
  int tile = 0;
  bool whole = true;  ///< every row sees all of it, as far as its interval goes
};

/// Queries and heads that the rows of a block have.
struct row_box {
  int query_begin = 0, query_end = 0;
  int head_begin = 0, head_end = 0;
};

__device__ __forceinline__ row_box box_of(const launch_args& args, const row_range& range) {
  const query_row first = query_of(args, range.kv_head, range.first_row);
  const query_row last = query_of(args, range.kv_head, range.first_row + range.visible - 1);
  const int group = static_cast<int>(args.group.value);
  const bool one_query = first.query == last.query;
  const int head = range.kv_head * group;
  return {first.query, last.query + 1, one_query ? first.head : head,
          one_query ? last.head + 1 : head + group};
}

/// Looks at `keys` entries of a mask's row and adds to what was found.
struct mask_scan {
  bool some = false;
  bool hidden = false;

  __device__ __forceinline__ void add_bytes(const std::uint8_t* row, std::int64_t step, int keys) {
    for (int j = 0; j < keys; ++j) {
      const bool shown = row[j * step] != 0;
      some = some || shown;
      hidden = hidden || !shown;
    }
  }
  /// `chunks` times 16 entries at a multiple of 16.
  __device__ __forceinline__ void add_chunks(const std::uint8_t* row, int chunks) {
    for (int c = 0; c < chunks; ++c) {
      const uint4 words = reinterpret_cast<const uint4*>(row)[c];
      some = some || (words.x | words.y | words.z | words.w) != 0;
      hidden = hidden || (__vcmpeq4(words.x, 0) | __vcmpeq4(words.y, 0) | __vcmpeq4(words.z, 0) |
                          __vcmpeq4(words.w, 0)) != 0;
    }
  }
};

/// Chooses tiles for a block. All threads of the block ask for the same tiles at the same time.
template <class Traits, class Hooks>
class tile_chooser {
  static constexpr bool masks = Traits::has(flash_feature::mask);
  static constexpr bool segments = Traits::has(flash_feature::segments);

 public:
  using window_type = std::conditional_t<masks, mask_window, no_mask_window>;

  __device__ __forceinline__ tile_chooser(const launch_args& args, const Hooks& hooks,
                                          const row_range& range, const key_range& keys,
                                          window_type& window)
      : args_(args), hooks_(hooks), range_(range), keys_(keys), window_(window) {}

  /// Before the first tile of a pass over the keys.
  __device__ __forceinline__ void begin() {
    if constexpr (segments) find_ids();
    if constexpr (masks) {
      if (args_.call.mask.data != nullptr) fill_window();
    }
  }

  /// The first tile from `tile` on that is not hidden from every row of the block.
  __device__ __forceinline__ chosen_tile next(int tile) {
    if constexpr (masks || segments || Hooks::has_mask) {
      for (; tile < keys_.last_tile; ++tile) {
        const prim::tile_visibility seen = visibility_of(tile);
        if (seen != prim::tile_visibility::skip) {
          return {tile, seen == prim::tile_visibility::full};
        }
      }
    }
    return {tile, true};
  }

 private:
  static __device__ __forceinline__ int lane() {
    return static_cast<int>(threadIdx.x % prim::cuda::warp_size);
  }
  static __device__ __forceinline__ prim::tile_visibility both(prim::tile_visibility a,
                                                               prim::tile_visibility b) {
    return a < b ? a : b;
  }

  __device__ __forceinline__ prim::tile_visibility visibility_of(int tile) {
    auto seen = prim::tile_visibility::full;
    if constexpr (masks) {
      if (args_.call.mask.data != nullptr) seen = by_mask(tile);
    }
    if constexpr (segments) {
      if (args_.call.q_segments.data != nullptr && seen != prim::tile_visibility::skip) {
        seen = both(seen, by_segments(tile));
      }
    }
    if constexpr (Hooks::has_mask) {
      if constexpr (prim::classifies_tiles<decltype(hooks_.mask)>) {
        const row_box box = box_of(args_, range_);
        seen = both(seen, hooks_.mask.classify(prim::score_tile{
                              range_.seq.index, box.head_begin, box.head_end, box.query_begin,
                              box.query_end, tile * Traits::block_kv,
                              min(keys_.end, (tile + 1) * Traits::block_kv)}));
      } else {
        seen = both(seen, prim::tile_visibility::partial);
      }
    }
    return seen;
  }

  __device__ __forceinline__ prim::tile_visibility by_mask(int tile) {
    const auto at = static_cast<unsigned>(tile - keys_.first_tile);
    if (at >= mask_window::tiles) return prim::tile_visibility::partial;
    if ((window_.some[at / 32] >> at % 32 & 1u) == 0) return prim::tile_visibility::skip;
    return (window_.whole[at / 32] >> at % 32 & 1u) != 0 ? prim::tile_visibility::full
                                                         : prim::tile_visibility::partial;
  }

  /// Looks at the mask, a lane at one tile.
  __device__ __forceinline__ void fill_window() {
    const score_tensor& mask = args_.call.mask;
    const row_box box = box_of(args_, range_);
    const int head_end = mask.head == 0 ? box.head_begin + 1 : box.head_end;
    const int query_end = mask.row == 0 ? box.query_begin + 1 : box.query_end;
    const auto* base = static_cast<const std::uint8_t*>(mask.data) + range_.seq.index * mask.batch;
    const bool in_chunks = reinterpret_cast<std::uintptr_t>(base) % 16 == 0 && mask.column == 1 &&
                           mask.head % 16 == 0 && mask.row % 16 == 0;
    const int words = (min(mask_window::tiles, keys_.last_tile - keys_.first_tile) + 31) / 32;
#pragma unroll 1
    for (int word = static_cast<int>(threadIdx.x) / prim::cuda::warp_size; word < words;
         word += Traits::warps) {
      const int tile = keys_.first_tile + word * 32 + lane();
      const int key0 = tile * Traits::block_kv;
      const int keys = min(Traits::block_kv, keys_.end - key0);
      mask_scan found;
      if (tile < keys_.last_tile) {
#pragma unroll 1
        for (int head = box.head_begin; head < head_end; ++head) {
          const auto* row = base + head * mask.head + box.query_begin * mask.row +
                            static_cast<std::int64_t>(key0) * mask.column;
#pragma unroll 1
          for (int query = box.query_begin; query < query_end; ++query, row += mask.row) {
            if (in_chunks && keys == Traits::block_kv) {
              found.add_chunks(row, Traits::block_kv / 16);
            } else if (mask.column == 0) {
              found.add_bytes(row, 0, 1);
            } else {
              found.add_bytes(row, mask.column, keys);
            }
            if (found.some && found.hidden) break;
          }
        }
      }
      const std::uint32_t some = __ballot_sync(prim::cuda::all_lanes, found.some);
      const std::uint32_t hidden = __ballot_sync(prim::cuda::all_lanes, found.hidden);
      if (lane() == 0) {
        window_.some[word] = some;
        window_.whole[word] = some & ~hidden;
      }
    }
    __syncthreads();
  }

  /// Smallest and largest segment of tokens [begin, end), padding left out of the smallest.
  __device__ __forceinline__ void range_of_ids(const token_ids& ids, int begin, int end, int& least,
                                               int& most) const {
    const std::int32_t* data = ids.data + range_.seq.index * ids.batch;
    least = INT32_MAX;
    most = -1;
    for (int i = begin + lane(); i < end; i += prim::cuda::warp_size) {
      const std::int32_t id = data[i * ids.row];
      if (id >= 0) least = min(least, id);
      most = max(most, id);
    }
    least = prim::cuda::minimum_of_warp(least);
    most = prim::cuda::maximum_of_warp(most);
  }

  __device__ __forceinline__ void find_ids() {
    if (args_.call.q_segments.data == nullptr) return;
    const row_box box = box_of(args_, range_);
    range_of_ids(args_.call.q_segments, box.query_begin, box.query_end, least_id_, most_id_);
  }

  __device__ __forceinline__ prim::tile_visibility by_segments(int tile) const {
    int least = 0;
    int most = 0;
    range_of_ids(args_.call.kv_segments, tile * Traits::block_kv,
                 min(keys_.end, (tile + 1) * Traits::block_kv), least, most);
    return least <= most_id_ && least_id_ <= most ? prim::tile_visibility::partial
                                                  : prim::tile_visibility::skip;
  }

  const launch_args& args_;
  const Hooks& hooks_;
  const row_range& range_;
  const key_range& keys_;
  window_type& window_;
  int least_id_ = 0, most_id_ = 0;
};

}  // namespace tessera::flash::sm80
