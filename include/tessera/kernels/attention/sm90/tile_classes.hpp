// Which tiles of keys mask tensors, segments and mask functors hide from a warpgroup's rows, or
// show them, as a whole: words that a kernel of its own (classify.hpp) leaves for those that
// follow. Intervals of keys (causal masks, windows, lengths) are not looked at here.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm90 {

/// The words of a work tile; null if nobody has classified tiles.
__device__ __forceinline__ const class_words* classes_of(const launch_args& args,
                                                         const work_tile& work) {
  if (args.classes == nullptr) return nullptr;
  const int head_block = args.classes_by_head ? args.heads_of_tile.quotient(work.first_head) : 0;
  const std::int64_t row = static_cast<std::int64_t>(head_block) * args.class_blocks + work.block;
  return args.classes + row * args.words_of_row;
}

/// The last tile of keys before `tile` that some row of the work tile may see something of; without
/// one from `first` on, a tile before `first`.
template <class Traits>
__device__ __forceinline__ int shown_before(const planned_tile<Traits>& planned, int tile,
                                            int first) {
  if (planned.classes == nullptr) return tile - 1;
  while (tile > first) {
    const int last = tile - 1;
    const std::uint32_t left = planned.classes[last / 32].some_of_block << (31 - last % 32);
    if (left != 0) return last - __clz(static_cast<int>(left));
    tile = last / 32 * 32;
  }
  return first - 1;
}

/// The way of a warpgroup from one shown tile of keys to the one before: a word of 32 tiles is read
/// once and stays in registers.
struct tile_walk {
  std::uint32_t some = 0, whole = 0;  ///< of the block; of the warpgroup
  int word = -1;

  /// As `shown_before`, and from then on `hides_some` is about that tile.
  template <class Traits>
  __device__ __forceinline__ int before(const planned_tile<Traits>& planned, int warpgroup,
                                        int tile, int first) {
    int last = tile - 1;
    if (planned.classes == nullptr) return last;
    while (last >= first) {
      if (last / 32 != word) {
        word = last / 32;
        some = planned.classes[word].some_of_block;
        whole = planned.classes[word].whole[warpgroup];
      }
      const std::uint32_t left = some << (31 - last % 32);
      if (left != 0) return last - __clz(static_cast<int>(left));
      last = word * 32 - 1;
    }
    return last;
  }
  __device__ __forceinline__ bool hides_some(int tile) const {
    return (whole >> tile % 32 & 1u) == 0;
  }
};

/// The tile of keys before which `count` shown ones lie; the end of the range, if there are fewer.
template <class Traits>
__device__ __forceinline__ int tile_behind(const planned_tile<Traits>& planned, int count) {
  const tile_range& range = planned.tiles[Traits::consumers];
  if (planned.classes == nullptr) return min(range.last, range.first + count);
  int tile = range.first;
  while (tile < range.last) {
    const std::uint32_t left = planned.classes[tile / 32].some_of_block >> tile % 32;
    const int next = left == 0 ? (tile / 32 + 1) * 32 : tile + __ffs(static_cast<int>(left)) - 1;
    if (next >= range.last) break;
    tile = next;
    if (left != 0 && count-- == 0) return tile;
    if (left != 0) ++tile;
  }
  return range.last;
}

/// True if some row of the warpgroup may not see all of a tile of keys.
template <class Traits>
__device__ __forceinline__ bool hides_some(const planned_tile<Traits>& planned, int warpgroup,
                                           int tile) {
  if constexpr (!Traits::classifies) return true;
  return planned.classes == nullptr ||
         (planned.classes[tile / 32].whole[warpgroup] >> tile % 32 & 1u) == 0;
}

/// The range without the tiles at its ends of which the warpgroup sees nothing.
__device__ __forceinline__ void leave_hidden_ends(const class_words* classes, int warpgroup,
                                                  tile_range& range) {
  while (range.first < range.last) {
    const std::uint32_t left = classes[range.first / 32].some[warpgroup] >> range.first % 32;
    if (left != 0) {
      range.first += __ffs(static_cast<int>(left)) - 1;
      break;
    }
    range.first = range.first / 32 * 32 + 32;
  }
  while (range.first < range.last) {
    const int end = (range.last - 1) % 32 + 1;  // bits below it
    const std::uint32_t left = classes[(range.last - 1) / 32].some[warpgroup] << (32 - end);
    if (left != 0) {
      range.last -= __clz(static_cast<int>(left));
      break;
    }
    range.last -= end;
  }
  if (range.first >= range.last) range = {};
}

/// Cuts the warpgroups' ranges, and that of the block to what is left of them. By a whole warp.
template <class Traits>
__device__ __forceinline__ void leave_hidden_tiles(planned_tile<Traits>& planned) {
  if (planned.classes == nullptr) return;
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  if (lane < Traits::consumers) {
    tile_range range = planned.tiles[lane];
    leave_hidden_ends(planned.classes, lane, range);
    planned.tiles[lane] = range;
  }
  __syncwarp();
  if (lane == 0) {
    tile_range block;
#pragma unroll
    for (int n = 0; n < Traits::consumers; ++n) {
      const tile_range& range = planned.tiles[n];
      if (range.first >= range.last) continue;
      block.first = block.last == 0 ? range.first : min(block.first, range.first);
      block.last = max(block.last, range.last);
    }
    planned.tiles[Traits::consumers] = block;
  }
}

/// Whether warpgroups are shown the same of the tiles that both go over.
template <class Traits>
__device__ __forceinline__ bool shows_alike(const planned_tile<Traits>& planned) {
  if constexpr (Traits::whole_tiles) return !planned.differ;
  return true;
}
/// Where they are not, what a warpgroup wants to know of a tile, which may be of the other's alone.
template <class Traits>
__device__ __forceinline__ void look_up_listed(const planned_tile<Traits>& planned, int warpgroup,
                                               int tile, bool& hides, bool& begins) {
  if constexpr (Traits::whole_tiles) {
    if (!begins || shows_alike(planned)) return;
    const int full_last = planned.tiles[warpgroup].full_last;
    begins = tile + 1 >= full_last;
    hides = tile >= full_last || planned.hides_from(warpgroup, planned.listed[tile]);
  }
}

/// Whether rows of the warpgroup, whose last tile of keys is `last` - 1, see its first half alone.
template <class Traits>
__device__ __forceinline__ bool ends_with_half_of(const planned_tile<Traits>& planned,
                                                  int warpgroup, int last) {
  if constexpr (!ends_with_half<Traits>) return false;
  // No row sees further than the last.
  const row_keys keys = planned.keys[(warpgroup + 1) * rows_of_warpgroup - 1];
  return keys.begin < keys.end && keys.end <= last * Traits::block_kv - Traits::block_kv / 2;
}

}  // namespace tessera::kernels::attention::sm90
