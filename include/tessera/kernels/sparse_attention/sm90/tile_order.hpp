// In which order blocks take the work tiles of a mask of whole blocks: the last ones by falling
// numbers of shown tiles of keys, so that blocks end together. A block takes a work tile before it
// has begun the one before: in their own order, of which a tenth of the blocks is shown, launches
// take 1.16 of the mean time of a block, so 1.04 (simulated: 1024 work tiles, 132 blocks).
//
// Every block sorts for itself, by a warp that has nothing else to do, while the first work tiles
// are worked on. All find the same order, because no two keys are alike.
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

/// Puts `count` work tiles in the order of their ranks, those alike in their own. By a warp.
__device__ __forceinline__ void sort_by_rank(attention::sm90::tile_order& order, int count) {
  constexpr int ranks = attention::sm90::tile_ranks;
  static_assert(ranks == 2 * prim::cuda::warp_size);
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  order.begin[2 * lane] = order.begin[2 * lane + 1] = 0;
  // Calls take(n, rank, ranks alike before it, all of them) for 32 work tiles at a time.
  const auto for_each_tile = [&](const auto& take) {
#pragma unroll 1
    for (int from = 0; from < count; from += prim::cuda::warp_size) {
      __syncwarp();
      const int n = from + lane;
      const int rank = n < count ? order.ranks[n] : ranks;
      const unsigned alike = __match_any_sync(prim::cuda::all_lanes, rank);
      take(n, rank, __popc(alike & ((1u << lane) - 1)), __popc(alike));
    }
    __syncwarp();
  };
  for_each_tile([&](int, int rank, int before, int alike) {
    if (before == 0) order.begin[rank] += static_cast<std::uint16_t>(alike);
  });
  const int low = order.begin[2 * lane], both = low + order.begin[2 * lane + 1];
  const int end = prim::cuda::inclusive_sum_of_warp(both, lane);
  order.begin[2 * lane] = static_cast<std::uint16_t>(end - both);
  order.begin[2 * lane + 1] = static_cast<std::uint16_t>(end - both + low);
  for_each_tile([&](int n, int rank, int before, int alike) {
    const int begin = order.begin[rank];
    if (n < count) order.tiles[begin + before] = static_cast<std::uint16_t>(n);
    __syncwarp();
    if (before == 0) order.begin[rank] = static_cast<std::uint16_t>(begin + alike);
  });
}

}  // namespace tessera::kernels::sparse_attention::sm90
