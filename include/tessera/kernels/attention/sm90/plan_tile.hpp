// The warp of a block that takes work tiles (work_tile.hpp) and leaves in shared memory what it
// finds out about them: their rows, the tiles of keys that each warpgroup goes through, the keys of
// each row.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/common/prefix.hpp>
#include <tessera/kernels/attention/sm80/work_list.hpp>
#include <tessera/kernels/attention/sm90/segment_runs.hpp>
#include <tessera/kernels/attention/sm90/shared_plan.hpp>
#include <tessera/kernels/attention/sm90/tile_classes.hpp>
#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/kernels/attention/sm90/work_tile.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cuda/arrival_table.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/tile_counter.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm90 {

/// Cuts the ranges of tiles of keys to the part of the block's that the item has. By one thread.
template <class Traits>
__device__ __forceinline__ void leave_part(const launch_args& args, planned_tile<Traits>& planned) {
  const int begin = planned.tiles[Traits::consumers].first;
  const int tiles = planned.tiles[Traits::consumers].last - begin;
  const int part = part_of(args, planned);
  const int units = tiles * args.units_of_part;
  const int first = begin + args.units.quotient(units * part);
  const int last = part + 1 == static_cast<int>(args.parts.value)
                       ? begin + tiles
                       : begin + args.units.quotient(units * part + units);
#pragma unroll 1
  for (int n = 0; n <= Traits::consumers; ++n) {
    tile_range& range = planned.tiles[n];
    range.first = max(range.first, first);
    range.last = min(range.last, last);
    if (range.first >= range.last) range.first = range.last = 0;
  }
}

/// Cuts the ranges of tiles of keys to those of an item, and says where its rows are left. By one
/// thread.
template <class Traits>
__device__ __forceinline__ void leave_item(const launch_args& args, const sm80::work_item& item,
                                           planned_tile<Traits>& planned) {
#pragma unroll 1
  for (int n = 0; n <= Traits::consumers; ++n) {
    tile_range& range = planned.tiles[n];
    range.first = max(range.first, item.first_tile);
    range.last = min(range.last, item.last_tile);
    if (range.first >= range.last) range.first = range.last = 0;
  }
  planned.first_key = item.first_tile * Traits::block_kv;
  planned.last_key = item.last_tile * Traits::block_kv;
  planned.partials_of_row = item.splits;
  planned.first_partial =
      item.place < 0
          ? -1
          : sm80::first_partial_of(args, item, planned.work.kv_head, Traits::block_q) + item.split;
}

/// What rows [first_row, first_row + rows) of a work tile see of a tile of keys, by a mask functor.
template <class Traits>
__device__ __forceinline__ prim::tile_visibility seen_of_tile(const launch_args& args,
                                                              const typename Traits::hooks& hooks,
                                                              const work_tile& work, int first_row,
                                                              int rows, int tile) {
  const query_span queries = queries_of(args, work, first_row, rows);
  const int key0 = tile * Traits::block_kv;
  return hooks.mask.classify(prim::score_tile{
      work.sequence, work.first_head, work.first_head + static_cast<int>(args.heads_of_tile.value),
      queries.first, queries.last + 1, key0, min(work.k_len, key0 + Traits::block_kv)});
}

/// Words of the work tile in shared memory: a lane asks about a tile of keys, for all rows and, if
/// these do not see it alike, for those of each warpgroup. By a whole warp.
template <class Traits>
__device__ __forceinline__ void ask_about_tiles(const launch_args& args,
                                                const typename Traits::hooks& hooks,
                                                planned_tile<Traits>& planned) {
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  const tile_range block = planned.tiles[Traits::consumers];
#pragma unroll 1
  for (int word = block.first / 32; word * 32 < block.last; ++word) {
    const int tile = word * 32 + lane;
    prim::tile_visibility seen = prim::tile_visibility::skip;
    if (tile >= block.first && tile < block.last) {
      seen = seen_of_tile<Traits>(args, hooks, planned.work, 0, Traits::block_q, tile);
    }
    const bool differs = seen == prim::tile_visibility::partial;
#pragma unroll 1
    for (int n = 0; n < Traits::consumers; ++n) {
      prim::tile_visibility own = seen;
      const int first_row = n * rows_of_warpgroup;
      if (differs && first_row < planned.work.used) {
        own = seen_of_tile<Traits>(args, hooks, planned.work, first_row, rows_of_warpgroup, tile);
      }
      const unsigned some =
          __ballot_sync(prim::cuda::all_lanes, own != prim::tile_visibility::skip);
      const unsigned whole =
          __ballot_sync(prim::cuda::all_lanes, own == prim::tile_visibility::full);
      if (lane == 0) {
        class_words& words = planned.words[word];
        words.some[n] = some;
        words.whole[n] = whole;
        words.some_of_block = n == 0 ? some : words.some_of_block | some;
      }
    }
  }
  __syncwarp();
}

/// Shown tiles of keys that are still to be brought when the next work tile is wanted: planning one
/// takes the longer, the more tiles there are to ask about.
__device__ __forceinline__ int shown_ahead(int asked) {
  return 6 + asked / 16;
}

/// Tile `index` of the launch and what consumers must know of it, in shared memory. By a warp with
/// few registers, so that the tile is written first, and read again for what follows from it.
/// `known` is the barrier of those for whom all but the keys of rows is enough.
template <class Traits>
__device__ __forceinline__ void plan_tile(const launch_args& args,
                                          const typename Traits::hooks& hooks, int index,
                                          planned_tile<Traits>& planned, std::uint32_t known) {
  constexpr int block_kv = Traits::block_kv;
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  const bool listed = is_listed<Traits>(args);
  const int number = listed ? args.head_blocks.quotient(index) : 0;
  const sm80::work_item* item = nullptr;
  bool is_prefix = false;
  {
    work_tile found;
    const int shared = !Traits::shares_keys || listed ? -1 : index - args.whole_tiles;
    // The first parts of all tiles, then the second ones.
    const int part = shared < 0 ? 0 : args.shared_tiles.quotient(shared);
    const int shared_tile = shared - part * static_cast<int>(args.shared_tiles.value);
    if (listed) {
      item = sm80::item_of(args, number);
      found.sequence = -1;
      if (item != nullptr) {
        is_prefix = item->entry < args.call.prefixes.count;
        found = listed_work_tile<Traits>(args, *item,
                                         index - number * static_cast<int>(args.head_blocks.value));
      }
    } else if (index >= args.tiles) {
      found.sequence = -1;
    } else if (args.call.cu_seqlens_q != nullptr) {
      found = packed_work_tile(args, index);
    } else {
      found = dense_work_tile(args, shared < 0 ? index : args.whole_tiles + shared_tile);
    }
    if (lane == 0) {
      planned.work = found;
      planned.piece = shared < 0 ? -1 : shared_tile * static_cast<int>(args.parts.value) + part;
    }
    __syncwarp();
  }
  const work_tile& work = planned.work;
  if (work.sequence < 0) {
    if (lane == 0) prim::cuda::arrive(known);
    return;
  }
  const auto visible =
      sm80::visibility_of_entry<mask_mode::window>(args.call, sequence_of(work), is_prefix);
  if constexpr (Traits::codes_of_heads) {
    if (lane == 0) {
      const float scale = scale_of_head<Traits>(args, work.first_head) * prim::log2_e;
      // A scale of 0 would make NaN of hidden scores, 0 * -inf.
      planned.log2_scale = fmaxf(fabsf(scale), 1e-30f);
      planned.turns_scores = scale < 0.0f;
    }
  }
  if constexpr (Traits::modifies) {
    if (lane == 0) {
      planned.query_offset = static_cast<int>(visible.mask.offset);
      planned.classes = classes_of(args, work);
      if constexpr (Traits::walks_tiles) {
        if (args.planner_asks) planned.classes = planned.words;
      }
    }
    __syncwarp();
  }
  if constexpr (Traits::reads_runs) {
    plan_runs<Traits>(args, visible, planned);
    if (lane == 0) prim::cuda::arrive(known);
    return;
  }
  // Lane n knows the tiles of warpgroup n, the lane behind them those of the whole block.
  if (lane <= Traits::consumers) {
    const bool block = lane == Traits::consumers;
    auto warpgroup = static_cast<unsigned>(lane);
    // Anew, or the rows of a lane would be kept from tile to tile.
    if constexpr (!Traits::walks_tiles) warpgroup = prim::cuda::computed_anew(warpgroup);
    const int first_row = block ? 0 : static_cast<int>(warpgroup) * rows_of_warpgroup;
    tile_range range;
    if (first_row < work.used) {
      const query_span span =
          queries_of(args, work, first_row, block ? Traits::block_q : rows_of_warpgroup);
      const prim::block_intervals keys = visible.keys_of(span.first, span.last);
      if (!keys.some.empty()) {
        range.first = static_cast<int>(keys.some.begin) / block_kv;
        range.last = (static_cast<int>(keys.some.end) + block_kv - 1) / block_kv;
        range.full_first = (static_cast<int>(keys.all.begin) + block_kv - 1) / block_kv;
        range.full_last = static_cast<int>(keys.all.end) / block_kv;
      }
    }
    planned.tiles[lane] = range;
  }
  __syncwarp();
  if constexpr (Traits::shares_keys) {
    if (lane == 0 && planned.piece >= 0) leave_part(args, planned);
  }
  if constexpr (Traits::lists) {
    if (lane == 0 && listed) leave_item(args, *item, planned);
    __syncwarp();
  }
  if constexpr (Traits::walks_tiles) {
    __syncwarp();
    if (args.planner_asks) ask_about_tiles(args, hooks, planned);
  }
  if constexpr (Traits::classifies) {
    __syncwarp();
    leave_hidden_tiles(planned);
    __syncwarp();
  }
  if constexpr (Traits::walks_tiles) {
    if (lane == 0) {
      const tile_range& block = planned.tiles[Traits::consumers];
      planned.late = tile_behind(planned, shown_ahead(block.last - block.first));
    }
  }
  // Copies begin before the rest is known, which consumers alone need.
  if (lane == 0) prim::cuda::arrive(known);
#pragma unroll 1
  for (int row = lane; row < Traits::block_q; row += prim::cuda::warp_size) {
    row_keys keys;
    if (row < work.used) {
      const prim::key_interval seen =
          visible.keys_of(work.first_query + args.heads_of_tile.quotient(row));
      keys = {static_cast<int>(seen.begin), static_cast<int>(seen.end)};
      if (listed) {
        keys.begin = max(keys.begin, planned.first_key);
        keys.end = min(keys.end, planned.last_key);
      }
    }
    planned.keys[row] = keys;
  }
}

/// The word in which the blocks of a launch count tiles.
template <class Kernel>
__device__ __forceinline__ unsigned* counter_of(const launch_args& args) {
  static __device__ unsigned words[prim::cuda::arrival_places];
  return args.counter_place >= 0 ? words + args.counter_place : args.counter_word;
}

/// Planning a work tile reads nothing that a kernel before may have written, but lengths: of plain
/// rows without scales of heads.
template <class Traits>
inline constexpr bool may_plan_early = Traits::from_first && !Traits::codes_of_heads;

/// The planner: one warp of a block that takes work tiles as late as possible and plans them.
template <class Kernel, class Traits>
__device__ __forceinline__ void plan_tiles(const launch_args& args,
                                           const typename Traits::hooks& hooks,
                                           shared_plan<Traits>& shared) {
  const std::uint32_t barriers = prim::cuda::shared_address(&shared.of_tile);
  prim::cuda::ring_place<2> place;
  int index = static_cast<int>(blockIdx.x);
  const int tiles = is_listed<Traits>(args)
                        ? sm80::end_of_items(args.list) * static_cast<int>(args.head_blocks.value)
                        : args.tiles;
  if constexpr (Traits::reads_runs || finds_runs<Traits>) {
    if (is_for_other(args, Traits::reads_runs)) index = args.tiles;
  }
  for (;; place.advance()) {
    place.wait_empty(barriers);
    planned_tile<Traits>& planned = shared.tile[place.stage()];
    const std::uint32_t known = place.full(prim::cuda::shared_address(&shared.of_work));
    if constexpr (Traits::whole_tiles) {
      hooks.mask.plan(args, hooks.mask.tile_in_order(args, shared, index), planned, known);
    } else {
      plan_tile<Traits>(args, hooks, index, planned, known);
    }
    if constexpr (Traits::stores_boxes) {
      const auto lane = threadIdx.x % prim::cuda::warp_size;
      if (lane < Traits::consumer_warps) shared.rows.wait[place.stage()][lane] = false;
    }
    prim::cuda::arrive(place.full(barriers));
    if (shared.tile[place.stage()].work.sequence < 0) return;
    // The places and the phases of `next_wanted` take turns alike.
    prim::cuda::wait_for_phase(prim::cuda::shared_address(&shared.next_wanted),
                               static_cast<std::uint32_t>(place.stage()));
    if (threadIdx.x % prim::cuda::warp_size == 0) {
      if constexpr (may_plan_early<Traits>) prim::cuda::wait_for_grid_before();
      index = prim::cuda::tile_counter(counter_of<Kernel>(args), tiles).take();
    }
    index = __shfl_sync(prim::cuda::all_lanes, index, 0);
  }
}

}  // namespace tessera::kernels::attention::sm90
