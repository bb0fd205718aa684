// Which tiles of keys a block of rows visits, and how much of each is visible: a tile is passed
// over where a mask tensor, segments or a mask functor hide all of it, and not looked at element by
// element where they hide nothing. Causal masks, windows and lengths are intervals of keys
// (work_tile.hpp).
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/kernels/attention/common/tile_scan.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/work_tile.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

/// What mask tensor and segments make of the first `tiles` tiles of keys of a block: bits in shared
/// memory. Later ones are looked at when their turn comes, or element by element.
struct tile_bits {
  static constexpr int tiles = 4096;
  std::uint32_t some[tiles / 32];   ///< something of the tile is shown to some row
  std::uint32_t whole[tiles / 32];  ///< and everything to every row
};
struct no_tile_bits {};

/// A tile of keys; `index` is that behind the last if there is none.
struct key_tile {
  int index = 0;
  bool whole = true;  ///< every row sees all of it, as far as its interval goes
};

/// Queries and heads that the rows of a block have.
struct row_box {
  int query_begin = 0, query_end = 0;
  int head_begin = 0, head_end = 0;
};

__device__ __forceinline__ row_box box_of(const launch_args& args, const work_tile& work) {
  const query_row first = query_of(args, work.kv_head, work.first_row);
  const query_row last = query_of(args, work.kv_head, work.first_row + work.used - 1);
  const int group = static_cast<int>(args.group.value);
  const bool one_query = first.query == last.query;
  const int head = work.kv_head * group;
  return {first.query, last.query + 1, one_query ? first.head : head,
          one_query ? last.head + 1 : head + group};
}

/// Walks over the tiles of a block. All threads of the block ask for the same tiles at the same
/// time.
template <class Traits, class Hooks>
class tile_iterator {
  static constexpr bool masks = Traits::has(attention_feature::mask);
  static constexpr bool segments = Traits::has(attention_feature::segments);

 public:
  /// No tile is passed over: the first one is known before the block's state is.
  static constexpr bool visits_all = !masks && !segments && !Hooks::has_mask;
  using bits_type = std::conditional_t<masks || segments, tile_bits, no_tile_bits>;

  __device__ __forceinline__ tile_iterator(const launch_args& args, const Hooks& hooks,
                                           const work_tile& work, const key_range& keys,
                                           bits_type& bits)
      : args_(args), hooks_(hooks), work_(work), keys_(keys), bits_(bits) {}

  /// Before the first tile of a pass over the keys.
  __device__ __forceinline__ void begin() {
    bool filled = false;
    if constexpr (masks) {
      if (args_.call.mask.data != nullptr) {
        look_at_mask();
        filled = true;
      }
    }
    if constexpr (segments) {
      if (args_.call.q_segments.data != nullptr) look_at_segments(filled);
    }
  }

  /// The first tile from `tile` on that is not hidden from every row of the block.
  __device__ __forceinline__ key_tile next(int tile) {
    if constexpr (masks || segments || Hooks::has_mask) {
      for (; tile < keys_.last_tile; ++tile) {
        const key_tile shown = next_of_tensors(tile);
        tile = shown.index;
        if (tile >= keys_.last_tile) break;
        if constexpr (!Hooks::has_mask) return shown;
        const prim::tile_visibility seen = by_functor(tile);
        if (seen != prim::tile_visibility::skip) {
          return {tile, shown.whole && seen == prim::tile_visibility::full};
        }
      }
    }
    return {tile, true};
  }

 private:
  static __device__ __forceinline__ int lane() {
    return static_cast<int>(threadIdx.x % prim::cuda::warp_size);
  }

  __device__ __forceinline__ bool has_tensors() const {
    return (masks && args_.call.mask.data != nullptr) ||
           (segments && args_.call.q_segments.data != nullptr);
  }
  /// Tiles whose bits are known.
  __device__ __forceinline__ int known_tiles() const {
    return min(tile_bits::tiles, keys_.last_tile - keys_.first_tile);
  }

  /// The same as far as mask tensor and segments know.
  __device__ __forceinline__ key_tile next_of_tensors(int tile) const {
    if constexpr (masks || segments) {
      if (!has_tensors()) return {tile, true};
      const int known = known_tiles();
      for (int at = tile - keys_.first_tile; at < known; at = at / 32 * 32 + 32) {
        const std::uint32_t left = bits_.some[at / 32] >> at % 32;
        if (left == 0) continue;
        at += __ffs(static_cast<int>(left)) - 1;
        return {keys_.first_tile + at, (bits_.whole[at / 32] >> at % 32 & 1u) != 0};
      }
      for (tile = max(tile, keys_.first_tile + known); tile < keys_.last_tile; ++tile) {
        if (segments_show(tile)) return {tile, false};
      }
    }
    return {tile, true};
  }

  __device__ __forceinline__ prim::tile_visibility by_functor(int tile) const {
    if constexpr (Hooks::has_mask) {
      if constexpr (prim::classifies_tiles<decltype(hooks_.mask)>) {
        const row_box box = box_of(args_, work_);
        return hooks_.mask.classify(prim::score_tile{
            work_.seq.index, box.head_begin, box.head_end, box.query_begin, box.query_end,
            tile * Traits::block_kv, min(keys_.end, (tile + 1) * Traits::block_kv)});
      }
    }
    return prim::tile_visibility::partial;
  }

  /// Looks at the mask, a lane at one tile.
  __device__ __forceinline__ void look_at_mask() {
    const score_tensor& mask = args_.call.mask;
    const row_box box = box_of(args_, work_);
    const int head_end = mask.head == 0 ? box.head_begin + 1 : box.head_end;
    const int query_end = mask.row == 0 ? box.query_begin + 1 : box.query_end;
    const auto* base = static_cast<const std::uint8_t*>(mask.data) + work_.seq.index * mask.batch;
    const bool in_chunks = reinterpret_cast<std::uintptr_t>(base) % 16 == 0 && mask.column == 1 &&
                           mask.head % 16 == 0 && mask.row % 16 == 0;
    const int words = (known_tiles() + 31) / 32;
#pragma unroll 1
    for (int word = static_cast<int>(threadIdx.x) / prim::cuda::warp_size; word < words;
         word += Traits::warps) {
      const int tile = keys_.first_tile + word * 32 + lane();
      const int key0 = tile * Traits::block_kv;
      const int keys = min(Traits::block_kv, keys_.end - key0);
      mask_scan scan;
      if (tile < keys_.last_tile) {
#pragma unroll 1
        for (int head = box.head_begin; head < head_end; ++head) {
          const auto* row = base + head * mask.head + box.query_begin * mask.row +
                            static_cast<std::int64_t>(key0) * mask.column;
#pragma unroll 1
          for (int query = box.query_begin; query < query_end;) {
            int rows = 1;
            if (in_chunks && keys == Traits::block_kv) {
              rows = min(mask_scan::rows_at_once, query_end - query);
              scan.add_chunks<Traits::block_kv>(row, mask.row, rows);
            } else if (mask.column == 0) {
              scan.add_bytes(row, 0, 1);
            } else {
              scan.add_bytes(row, mask.column, keys);
            }
            if (scan.some && scan.hidden) break;
            query += rows;
            row += rows * mask.row;
          }
        }
      }
      const std::uint32_t some = __ballot_sync(prim::cuda::all_lanes, scan.some);
      const std::uint32_t hidden = __ballot_sync(prim::cuda::all_lanes, scan.hidden);
      if (lane() == 0) {
        bits_.some[word] = some;
        bits_.whole[word] = some & ~hidden;
      }
    }
    __syncthreads();
  }

  __device__ __forceinline__ id_range ids_of(const token_ids& ids, int begin, int end) const {
    const std::int32_t* data = ids.data + work_.seq.index * ids.batch;
    id_range range;
    for (int i = begin + lane(); i < end; i += prim::cuda::warp_size) range.add(data[i * ids.row]);
    range.gather();
    return range;
  }
  __device__ __forceinline__ id_range ids_of_queries() const {
    const row_box box = box_of(args_, work_);
    return ids_of(args_.call.q_segments, box.query_begin, box.query_end);
  }

  /// Looks at the segments, a warp at 32 tiles. `filled`: the bits have the mask's bits.
  __device__ __forceinline__ void look_at_segments(bool filled) {
    const token_ids& ids = args_.call.kv_segments;
    const std::int32_t* data = ids.data + work_.seq.index * ids.batch;
    const id_range own = ids_of_queries();
    const int words = (known_tiles() + 31) / 32;
    constexpr int loads = (Traits::block_kv + prim::cuda::warp_size - 1) / prim::cuda::warp_size;
#pragma unroll 1
    for (int word = static_cast<int>(threadIdx.x) / prim::cuda::warp_size; word < words;
         word += Traits::warps) {
      std::uint32_t some = 0;
      std::uint32_t whole = 0;
      const int first = keys_.first_tile + word * 32;
      const int tiles = min(32, keys_.last_tile - first);
#pragma unroll 4
      for (int i = 0; i < tiles; ++i) {
        const int key0 = (first + i) * Traits::block_kv;
        id_range of_tile;
#pragma unroll
        for (int part = 0; part < loads; ++part) {
          const int in_tile = part * prim::cuda::warp_size + lane();
          // A lane without a key looks at the last one once more.
          const int key = min(key0 + min(in_tile, Traits::block_kv - 1), keys_.end - 1);
          of_tile.add(data[key * ids.row]);
        }
        of_tile.gather();
        const std::uint32_t bit = 1u << i;
        some |= own.meets(of_tile) ? bit : 0u;
        whole |= own.is_only(own.most) && of_tile.is_only(own.most) ? bit : 0u;
      }
      if (lane() == 0) {
        bits_.some[word] = filled ? bits_.some[word] & some : some;
        bits_.whole[word] = filled ? bits_.whole[word] & whole : whole;
      }
    }
    __syncthreads();
  }

  /// Of a tile behind those whose bits are known.
  __device__ __forceinline__ bool segments_show(int tile) const {
    if constexpr (segments) {
      if (args_.call.q_segments.data != nullptr) {
        return ids_of_queries().meets(ids_of(args_.call.kv_segments, tile * Traits::block_kv,
                                             min(keys_.end, (tile + 1) * Traits::block_kv)));
      }
    }
    return true;
  }

  const launch_args& args_;
  const Hooks& hooks_;
  const work_tile& work_;
  const key_range& keys_;
  bits_type& bits_;
};

}  // namespace tessera::kernels::attention::sm80
