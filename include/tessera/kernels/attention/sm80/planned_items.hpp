// Items of single tokens without a list: every block finds its own by the lengths of all sequences,
// and so does what combines the parts of a sequence. A warp looks at 32 sequences at a time.
#pragma once

#include <cstdint>

#include <tessera/families/attention/share_blocks_sm80.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/work_list.hpp>
#include <tessera/kernels/attention/sm80/work_tile.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

/// Tiles of keys of sequence `n`; none if there is no such sequence.
__device__ __forceinline__ key_range tiles_of_sequence(const launch_args& args, int n,
                                                       int block_kv) {
  work_tile work;
  if (n < static_cast<int>(args.call.batch)) work.seq.k_len = keys_of_sequence(args.call, n);
  return keys_of_single(args, work, block_kv);
}

/// Item `number`, or the first of sequence `number`. One that is not there has no splits. Its place
/// is the number of its sequence's first item.
template <bool OfSequence>
__device__ __forceinline__ work_item planned_item(const launch_args& args, int number,
                                                  int block_kv) {
  const auto batch = static_cast<int>(args.call.batch);
  const auto lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  float left = 0.0f;  // lengths that nobody has looked at have any sum
  for (int n = lane; n < batch; n += prim::cuda::warp_size) {
    const key_range keys = tiles_of_sequence(args, n, block_kv);
    left += static_cast<float>(keys.last_tile - keys.first_tile);
  }
#pragma unroll
  for (int step = 1; step < prim::cuda::warp_size; step *= 2) {
    left += __shfl_xor_sync(prim::cuda::all_lanes, left, step);
  }
  const float share = args.list.planned_share;
  const float least = schedule_sm80::least_of_part(left, share, args.list.planned_least);
  work_item item;
  item.splits = 0;
  int items = 0;  // of sequences before
#pragma unroll 1
  for (int begin = 0; begin < batch; begin += prim::cuda::warp_size) {
    const int n = begin + lane;
    const key_range keys = tiles_of_sequence(args, n, block_kv);
    const int tiles = keys.last_tile - keys.first_tile;
    const int tiles_through = prim::cuda::inclusive_sum_of_warp(tiles, lane);
    const float from_here = left - static_cast<float>(tiles_through - tiles);
    const int parts = n < batch ? schedule_sm80::planned_parts(tiles, from_here, share, least) : 0;
    const int items_through = items + prim::cuda::inclusive_sum_of_warp(parts, lane);
    const unsigned past =
        __ballot_sync(prim::cuda::all_lanes, OfSequence ? n >= number : items_through > number);
    if (past != 0) {
      const int found = __ffs(static_cast<int>(past)) - 1;
      const auto of_found = [found](int x) { return __shfl_sync(prim::cuda::all_lanes, x, found); };
      item.entry = begin + found;
      item.splits = of_found(parts);
      item.place = of_found(items_through) - item.splits;
      item.split = OfSequence ? 0 : number - item.place;
      item.first_tile = of_found(keys.first_tile);
      item.last_tile = of_found(keys.last_tile);
      cut_tiles(item.first_tile, item.last_tile, of_found(tiles) / item.splits, item.splits,
                item.split);
      if (item.splits == 1) item.place = -1;
      return item;
    }
    items = __shfl_sync(prim::cuda::all_lanes, items_through, prim::cuda::warp_size - 1);
    left -= static_cast<float>(
        __shfl_sync(prim::cuda::all_lanes, tiles_through, prim::cuda::warp_size - 1));
  }
  return item;
}

/// The item of a block, by the list or without one, where it is kept; without splits: nothing.
template <class Traits>
__device__ __forceinline__ work_item kept_item_of_block(const launch_args& args, int index) {
  work_item none;
  none.splits = 0;
  if constexpr (!Traits::keeps_items) {
    return none;
  } else {
    if (args.list.planned_share > 0.0f) {
      return planned_item<false>(args, args.kv_heads.quotient(index), Traits::block_kv);
    }
    const work_item* const listed = item_of_block(args, index);
    return listed != nullptr ? *listed : none;
  }
}

/// Where the rows of a block come from: the number of the block, or the list.
template <class Traits>
__device__ __forceinline__ work_tile work_tile_of_block(const launch_args& args,
                                                        const work_item& kept, int index) {
  if constexpr (Traits::keeps_items) {
    if (kept.splits == 0) return {};
    const int sequence = kept.entry - static_cast<int>(args.call.prefixes.count);
    return single_work_tile(args, sequence,
                            index - args.kv_heads.quotient(index) * args.call.kv_heads);
  } else if constexpr (Traits::paged && !Traits::single) {
    if (args.list.items != nullptr) {
      const work_item* item = item_of_block(args, index);
      if (item == nullptr) return {};
      return tile_of(entry_of(args, item->entry, Traits::block_kv),
                     index - args.kv_heads.quotient(index) * args.call.kv_heads, item->first_row,
                     Traits::block_q);
    }
  }
  return work_tile_of<Traits>(args, index);
}

/// Likewise who sees whom among them, and the keys that are the block's.
template <class Traits>
__device__ __forceinline__ prim::row_visibility<Traits::config.mask> visibility_of_block(
    const launch_args& args, const work_tile& work, int index) {
  if constexpr (Traits::paged && !Traits::single && !Traits::keeps_items) {
    if (args.list.items != nullptr && work.rows > 0) {
      const bool is_prefix = item_of_block(args, index)->entry < args.call.prefixes.count;
      return visibility_of_entry<Traits::config.mask>(args.call, work.seq, is_prefix);
    }
  }
  return visibility_of<Traits::config.mask>(args.call, work.seq);
}
template <class Traits>
__device__ __forceinline__ key_range
listed_keys_of_block(const launch_args& args, const work_tile& work,
                     const prim::row_visibility<Traits::config.mask>& visible,
                     const work_item& kept, int index, int split) {
  if constexpr (Traits::keeps_items) {
    key_range keys = keys_of_single(args, work, Traits::block_kv);
    keys.first_tile = kept.first_tile;
    keys.last_tile = kept.last_tile;
    return keys;
  } else if constexpr (Traits::paged && !Traits::single) {
    if (args.list.items != nullptr) {
      key_range keys = visible_keys(args, work, visible, Traits::block_kv);
      const work_item* item = item_of_block(args, index);
      keys.first_tile = item->first_tile;
      keys.last_tile = item->last_tile;
      return keys;
    }
  }
  return keys_of_block<Traits>(args, work, visible, split);
}

}  // namespace tessera::kernels::attention::sm80
