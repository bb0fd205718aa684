// Masks of blocks that tiles of the dense kernels lie in: a tile is shown to the rows of a
// warpgroup or hidden from them, and no pair is asked about.
#pragma once

#include <cstdint>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/kernels/attention/sm90/plan_tile.hpp>
#include <tessera/kernels/attention/sm90/tile_classes.hpp>
#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/kernels/attention/sm90/work_tile.hpp>
#include <tessera/kernels/sparse_attention/sm80/visible_pairs.hpp>
#include <tessera/kernels/sparse_attention/sm90/tile_order.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::sparse_attention::sm90 {

/// Who sees whom by such a mask and causality alone.
struct whole_blocks : sm80::visible_pairs {
  /// Whether a call whose work tiles have the rows of `heads` heads is such: those of a warpgroup
  /// and tiles of `keys` keys lie in blocks, and the planner has words for all tiles.
  static bool are(const sm80::visible_pairs& pairs, const attention_kernel_args& call, int heads,
                  int keys) {
    constexpr int rows = attention::sm90::rows_of_warpgroup;
    const bool asks = pairs.needs_bounds() || pairs.mask.data != nullptr || pairs.chunk_size > 0;
    const std::int64_t farthest = call.q_len + call.kv_len;  // from a query to a key, at most
    return pairs.block_mask.data != nullptr && !asks && call.soft_cap == 0.0f &&
           call.window_left >= farthest && call.window_right >= farthest && rows % heads == 0 &&
           pairs.block_q % (rows / heads) == 0 && pairs.block_k % keys == 0 &&
           pairs.block_q <= longest && pairs.block_k <= longest &&
           call.kv_len <= std::int64_t{attention::sm90::near_words} * 32 * keys;
  }

  /// What attention/sm90/plan_tile.hpp leaves of a work tile, with little code: what is run once a
  /// work tile does not stay in the instruction cache beside the loops of the others.
  template <class Planned>
  __device__ __forceinline__ void plan(const attention::sm90::launch_args& args, int index,
                                       Planned& planned, std::uint32_t known) const {
    const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
    if (index >= args.tiles) {
      if (lane == 0) planned.work.sequence = -1;
      if (lane == 0) prim::cuda::arrive(known);
      __syncwarp();
      return;
    }
    const attention::sm90::work_tile work = attention::sm90::dense_work_tile(args, index);
    const bool ends_early = args.call.causal;
    const int reach = reach_of(args);
    const auto end_of = [&](int query) {
      return ends_early ? max(0, min(work.k_len, query + reach)) : work.k_len;
    };
    if (lane == 0) {
      planned.work = work;
      planned.piece = -1;
      planned.query_offset = reach - 1;
    }
    list_shown_tiles(args, work, end_of, planned);
    if (lane == 0) prim::cuda::arrive(known);
#pragma unroll 1
    for (int row = lane; row < tile_rows; row += prim::cuda::warp_size) {
      const int query = work.first_query + args.heads_of_tile.quotient(row);
      planned.keys.end[row] = static_cast<std::uint16_t>(row < work.used ? end_of(query) : 0);
    }
  }

  /// Leaves the order of the last work tiles in shared memory. By a warp.
  template <class Shared>
  __device__ __forceinline__ void sort_tiles(const attention::sm90::launch_args& args,
                                             Shared& shared) const {
    const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
    const int first = first_sorted_tile(args), count = args.tiles - first;
    if (count <= 0) return;
#pragma unroll 1
    for (int n = lane; n < count; n += prim::cuda::warp_size) {
      const int shown = shown_blocks(args, attention::sm90::dense_work_tile(args, first + n));
      shared.order.ranks[n] = rank_of(shown, blocks_of_keys(static_cast<int>(args.call.kv_len)));
    }
    sort_by_rank(shared.order, count);
    if (lane == 0) prim::cuda::arrive(prim::cuda::shared_address(&shared.order.is_there));
  }
  /// The work tile that is handed out as number `index`.
  template <class Shared>
  __device__ __forceinline__ int tile_in_order(const attention::sm90::launch_args& args,
                                               Shared& shared, int index) const {
    const int first = first_sorted_tile(args);
    if (index < first || index >= args.tiles) return index;
    prim::cuda::wait_for_phase(prim::cuda::shared_address(&shared.order.is_there), 0);
    return first + shared.order.tiles[index - first];
  }

 private:
  /// How many blocks of keys the rows of a work tile are shown; 0 of masks that are not read 16
  /// bytes at a time, whose work tiles keep their own order.
  __device__ __forceinline__ int shown_blocks(const attention::sm90::launch_args& args,
                                              const attention::sm90::work_tile& work) const {
    if (block_mask.column != 1) return 0;
    const int tokens =
        attention::sm90::rows_of_warpgroup / static_cast<int>(args.heads_of_tile.value);
    const int last = min(work.first_query + warpgroups * tokens, work.q_len) - 1;
    const int seen = args.call.causal ? max(0, min(work.k_len, last + reach_of(args))) : work.k_len;
    return shown_of_rows(blocks_of_row(work, work.first_query),
                         blocks_of_row(work, min(work.first_query + tokens, last)),
                         blocks_of_keys(seen));
  }
  __device__ __forceinline__ int blocks_of_keys(int keys) const {
    const auto length = static_cast<std::uint32_t>(block_k);
    return static_cast<int>((static_cast<std::uint32_t>(keys) + length - 1) / length);
  }
  /// From a query to the end of the keys that it may see.
  static __device__ __forceinline__ int reach_of(const attention::sm90::launch_args& args) {
    return 1 + (args.call.top_left ? 0 : static_cast<int>(args.call.kv_len - args.call.q_len));
  }

  static constexpr std::int64_t longest = attention::sm90::longest_length;
  static constexpr int tile_rows = 128, tile_keys = 128, warpgroups = 2;

  /// Leaves which tiles of keys the rows of each warpgroup are shown, a bit each. By a warp.
  template <class EndOf, class Planned>
  __device__ __forceinline__ void leave_shown_tiles(const attention::sm90::work_tile& work,
                                                    const EndOf& end_of, int tokens, int tiles,
                                                    Planned& planned) const {
    const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
#pragma unroll 1
    for (int n = 0; n < warpgroups; ++n) {
      const int query = work.first_query + n * tokens;
      const int last = min(query + tokens, work.q_len) - 1;
      const int seen = last >= query ? end_of(last) : 0;
      const std::uint8_t* const shown = blocks_of_row(work, query);
#pragma unroll 1
      for (int word = 0; word * 32 < tiles; ++word) {
        const int key = (word * 32 + lane) * tile_keys;
        const std::uint32_t some =
            __ballot_sync(prim::cuda::all_lanes, key < seen && is_shown(shown, key));
        if (lane == 0) planned.of_warpgroup[n][word] = some;
      }
    }
    __syncwarp();
  }

  /// Lists the tiles of keys that the work tile is shown, and leaves which of them each warpgroup
  /// goes over: lane n knows that of warpgroup n. By a warp.
  template <class EndOf, class Planned>
  __device__ __forceinline__ void list_shown_tiles(const attention::sm90::launch_args& args,
                                                   const attention::sm90::work_tile& work,
                                                   const EndOf& end_of, Planned& planned) const {
    const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
    const int tokens =
        attention::sm90::rows_of_warpgroup / static_cast<int>(args.heads_of_tile.value);
    const int tiles = (work.k_len + tile_keys - 1) / tile_keys;
    leave_shown_tiles(work, end_of, tokens, tiles, planned);
    const int warpgroup = min(lane, warpgroups - 1);
    const int full_tiles = end_of(work.first_query + warpgroup * tokens) / tile_keys;
    attention::sm90::tile_range own;
    int listed = 0, count = 0;
#pragma unroll 1
    for (int word = 0; word * 32 < tiles; ++word) {
      const std::uint32_t all = planned.of_warpgroup[0][word] | planned.of_warpgroup[1][word];
      const std::uint32_t some = planned.of_warpgroup[warpgroup][word];
      // How many of the list come before the first `n` tiles of the word.
      const auto before = [&](int n) {
        return listed + __popc(n < 32 ? all & ((1u << n) - 1) : all);
      };
      if ((all >> lane & 1u) != 0) {
        planned.listed[before(lane)] = static_cast<std::uint8_t>(word * 32 + lane);
      }
      if (some != 0) {
        if (own.last == 0) own.first = before(__ffs(static_cast<int>(some)) - 1);
        own.last = before(32 - __clz(static_cast<int>(some)));
        count += __popc(some);
      }
      if (full_tiles > word * 32) own.full_last = before(min(full_tiles - word * 32, 32));
      listed = before(32);
    }
    const bool differ = prim::cuda::any_of_warp(own.last - own.first != count);
    if (lane < warpgroups) planned.tiles[lane] = own;
    if (lane == 0) {
      planned.tiles[warpgroups] = {0, listed, 0, 0};
      planned.differ = differ;
      planned.late = min(listed, attention::sm90::shown_ahead(tiles));
    }
    __syncwarp();
  }

  /// The bytes of the blocks of a query.
  __device__ __forceinline__ const std::uint8_t* blocks_of_row(
      const attention::sm90::work_tile& work, int query) const {
    const auto row = static_cast<std::uint32_t>(query) / static_cast<std::uint32_t>(block_q);
    return block_mask.data + work.sequence * block_mask.entry + work.first_head * block_mask.head +
           row * block_mask.row;
  }
  /// What they say of a key.
  __device__ __forceinline__ bool is_shown(const std::uint8_t* row, int key) const {
    const auto column = static_cast<std::uint32_t>(key) / static_cast<std::uint32_t>(block_k);
    return row[column * block_mask.column] != 0;
  }
};

}  // namespace tessera::kernels::sparse_attention::sm90

namespace tessera::kernels::attention::sm90 {

template <>
inline constexpr bool shows_whole_tiles<kernels::sparse_attention::sm90::whole_blocks> = true;

}  // namespace tessera::kernels::attention::sm90
