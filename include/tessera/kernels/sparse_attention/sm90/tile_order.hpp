// In which order blocks take the work tiles of a mask of whole blocks: the last ones by falling
// numbers of shown tiles of keys, so that blocks end together. A block takes a work tile when it
// begins the one before: in their own order launches take 1.17 of the mean time of a block where a
// tenth of the blocks is shown, so 1.02 (simulated: 1024 work tiles, 132 blocks; with the last 256
// 1.07).
//
// Every block looks for itself, by a warp that has nothing else to do, while the first work tiles
// are worked on. All find the same order.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/kernels/attention/sm90/work_tile.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::sparse_attention::sm90 {

using attention::sm90::most_sorted_tiles;

/// The first work tile that is not taken in its own order: blocks take two before there is another.
__device__ __forceinline__ int first_sorted_tile(const attention::sm90::launch_args& args) {
  return max(args.tiles - most_sorted_tiles, 2 * static_cast<int>(gridDim.x));
}

/// Columns of two rows of a mask, a byte for each block, of which one shows something. Rows that do
/// not start at multiples of 16 bytes: none.
__device__ __forceinline__ int shown_of_rows(const std::uint8_t* row, const std::uint8_t* other,
                                             int columns) {
  constexpr int together = 16;
  const auto starts =
      reinterpret_cast<std::uintptr_t>(row) | reinterpret_cast<std::uintptr_t>(other);
  if (starts % together != 0) return 0;
  const bool differ = row != other;
  const auto of_word = [](std::uint32_t word) { return __popc(__vcmpne4(word, 0)); };
  int bits = 0;
#pragma unroll 2
  for (int at = 0; at < columns / together; ++at) {
    uint4 bytes = reinterpret_cast<const uint4*>(row)[at];
    if (differ) {
      const uint4 more = reinterpret_cast<const uint4*>(other)[at];
      bytes = make_uint4(bytes.x | more.x, bytes.y | more.y, bytes.z | more.z, bytes.w | more.w);
    }
    bits += of_word(bytes.x) + of_word(bytes.y) + of_word(bytes.z) + of_word(bytes.w);
  }
  int shown = bits / 8;
#pragma unroll 1
  for (int at = columns / together * together; at < columns; ++at) {
    shown += (row[at] | other[at]) != 0;
  }
  return shown;
}

/// 0 for the work tiles that are shown most.
__device__ __forceinline__ std::uint8_t rank_of(int shown, int columns) {
  constexpr int last = attention::sm90::tile_ranks - 1;
  return static_cast<std::uint8_t>(last - shown * last / max(1, columns));
}

/// Counts the `count` work tiles whose ranks are there. By a warp.
__device__ __forceinline__ void count_ranks(attention::sm90::tile_order& order, int count) {
  static_assert(attention::sm90::tile_ranks == 2 * prim::cuda::warp_size);
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  order.begin[2 * lane] = order.begin[2 * lane + 1] = 0;
#pragma unroll 1
  for (int from = 0; from < count; from += prim::cuda::warp_size) {
    __syncwarp();
    // The first of those alike counts for all.
    const int rank = from + lane < count ? order.ranks[from + lane] : attention::sm90::tile_ranks;
    const unsigned alike = __match_any_sync(prim::cuda::all_lanes, rank);
    if (__ffs(static_cast<int>(alike)) - 1 == lane) {
      order.begin[rank] += static_cast<std::uint16_t>(__popc(alike));
    }
  }
  __syncwarp();
  const int low = order.begin[2 * lane], both = low + order.begin[2 * lane + 1];
  const int end = prim::cuda::inclusive_sum_of_warp(both, lane);
  order.begin[2 * lane] = static_cast<std::uint16_t>(end - both);
  order.begin[2 * lane + 1] = static_cast<std::uint16_t>(end - both + low);
  __syncwarp();
}

/// Which of the `count` work tiles is at a place of the order: those alike are in their own. By a
/// warp.
__device__ __forceinline__ int tile_at(const attention::sm90::tile_order& order, int count,
                                       int place) {
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  const auto lanes = [](bool said) { return __ballot_sync(prim::cuda::all_lanes, said); };
  const int rank = __popc(lanes(order.begin[2 * lane] <= place)) +
                   __popc(lanes(order.begin[2 * lane + 1] <= place)) - 1;
  place -= order.begin[rank];
#pragma unroll 1
  for (int from = 0; from < count; from += prim::cuda::warp_size) {
    const bool own = from + lane < count && order.ranks[from + lane] == rank;
    const unsigned alike = lanes(own);
    const unsigned here = lanes(own && __popc(alike & ((1u << lane) - 1)) == place);
    if (here != 0) return from + __ffs(static_cast<int>(here)) - 1;
    place -= __popc(alike);
  }
  return 0;  // never: places are those of work tiles
}

}  // namespace tessera::kernels::sparse_attention::sm90
