// Combines what the items of a list of work leave (work_list.hpp): the parts of a sequence's rows,
// and those of keys that sequences share.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm80/planned_items.hpp>
#include <tessera/kernels/attention/sm80/split_kv.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/work_list.hpp>

namespace tessera::kernels::attention::sm80 {

/// Partial results of a row that lie one behind the other.
struct partial_run {
  std::int64_t first = 0;
  int splits = 0;
};

/// Those of a row: of its sequence's own keys, and of those that a group shares.
struct row_runs {
  partial_run of[2];
};

/// Those of row `row`, counted from the first of the group, of the keys that a group shares.
template <class Kernel>
__device__ __forceinline__ partial_run run_of_prefix(const launch_args& args, int prefix,
                                                     int kv_head, int row) {
  constexpr int block_q = resolved(Kernel::config).block_q;
  const work_list& list = args.list;
  // Tiles of an entry lie in the list from the last to the first.
  const int tile = list.first_tiles[prefix + 1] - 1 - row / block_q;
  if (row < 0 || tile < list.first_tiles[prefix] || tile >= list.tile_count[0]) return {};
  const int at = list.first_items[tile];
  if (at >= list.most_items) return {};
  const work_item& item = list.items[at];
  return {first_partial_of(args, item, kv_head, block_q) + row % block_q * item.splits,
          item.splits};
}

/// Whether the rows of a tile are combined by as many blocks as it has items, of which long
/// sequences have many; else by one, where they are few: of single queries, and of tiles of a
/// kernel beside the row's.
template <class Kernel>
__host__ __device__ constexpr bool shares_combining(bool apart) {
  return resolved(Kernel::config).phase != attention_phase::decode && !apart;
}

/// Some rows of a tile whose parts a block combines.
struct combined_rows {
  const work_item* item = nullptr;  ///< null: nothing is left to be combined here
  int share = 0, shares = 1;
};

/// Those of tile or item `number` of a key/value head.
template <class Kernel>
__device__ __forceinline__ combined_rows rows_to_combine(const launch_args& args, int number) {
  const work_list& list = args.list;
  combined_rows rows;
  if (!shares_combining<Kernel>(list.apart)) {
    if (number >= list.tile_count[0] || list.first_items[number] >= list.most_items) return {};
    rows.item = list.items + list.first_items[number];
  } else {
    if (number >= end_of_items(list)) return {};
    rows = {list.items + number, list.items[number].split, list.items[number].splits};
  }
  const bool is_finished = rows.item->place < 0 || rows.item->entry < args.call.prefixes.count;
  return is_finished ? combined_rows{} : rows;
}

/// Combines the parts of the rows of listed tiles of sequences that are not finished, and those of
/// the keys that they share with others, by blocks of `combine_warps` warps at most. Its time is
/// that of looking up what to add, so that many blocks are to run at once.
template <class Kernel>
__global__ void __launch_bounds__(combine_warps * 32, 3)
    combine_listed(const __grid_constant__ launch_args args) {
  constexpr attention_config config = resolved(Kernel::config);
  constexpr int own_rows = schedule_sm80::own_config(Kernel::config).block_q;
  const int block_q = args.list.apart ? own_rows : config.block_q;
  using combiner = slice_combiner<Kernel, 1, 1, schedule_sm80::few_splits, true>;
  prim::cuda::let_next_grid_start();
  const work_list& list = args.list;
  // Blocks of a launch of two kernels come when all of these run, and so behind the list.
  if (list.apart) {
    acquire_list(list);
  } else {
    prim::cuda::wait_for_grid_before();
  }
  const auto wait_for_partials = [&list] {
    if (list.apart) prim::cuda::wait_for_grid_before();
  };
  const int end = shares_combining<Kernel>(list.apart)
                      ? end_of_items(list) * static_cast<int>(args.kv_heads.value)
                      : static_cast<int>(gridDim.x);
#pragma unroll 1
  for (int at = static_cast<int>(blockIdx.x); at < end; at += static_cast<int>(gridDim.x)) {
    const int number = args.kv_heads.quotient(at);
    const int kv_head = at - number * args.call.kv_heads;
    const combined_rows rows = rows_to_combine<Kernel>(args, number);
    if (rows.item == nullptr) {
      wait_for_partials();
      continue;
    }
    const work_item& item = *rows.item;
    const work_entry entry = entry_of(args, item.entry, config.block_kv);
    const work_tile work = tile_of(entry, kv_head, item.first_row, block_q);
    const std::int64_t first = first_partial_of(args, item, kv_head, block_q);
    int row_in_group = 0;
    if (entry.prefix >= 0) {
      const work_entry group = entry_of(args, entry.prefix, config.block_kv);
      const std::int64_t before = args.call.cu_seqlens_q != nullptr
                                      ? entry.seq.q_begin - group.seq.q_begin
                                      : entry.seq.index - group.seq.index;
      row_in_group = static_cast<int>(before) * static_cast<int>(args.group.value) + work.first_row;
    }
    const int per_row = schedule_sm80::slices_of_row(args.partial_stride, 1);
    const int splits = item.splits;
    const int slices = work.used * per_row;
    const int last = slices * (rows.share + 1) / rows.shares;
    int slice =
        slices * rows.share / rows.shares + static_cast<int>(threadIdx.x) / prim::cuda::warp_size;
    const auto runs_of = [&](int r) {
      row_runs runs{{{first + r * splits, splits}, {}}};
      if (entry.prefix >= 0) {
        runs.of[1] = run_of_prefix<Kernel>(args, entry.prefix, kv_head, row_in_group + r);
      }
      return runs;
    };
    row_runs runs = runs_of(slice / per_row);
    wait_for_partials();
#pragma unroll 1
    for (; slice < last;) {
      const int r = slice / per_row;
      combiner::combine_runs(args, entry.seq, query_of(args, kv_head, work.first_row + r), runs.of,
                             slice - r * per_row);
      slice += static_cast<int>(blockDim.x) / prim::cuda::warp_size;
      runs = runs_of(slice / per_row);
    }
  }
}

/// Combines the parts of single tokens that have no list: a block for each sequence and key/value
/// head, whose lengths lay there before the blocks that left the parts began.
template <class Kernel>
__global__ void __launch_bounds__(combine_warps * 32, 3)
    combine_planned(const __grid_constant__ launch_args args) {
  constexpr attention_config config = resolved(Kernel::config);
  using combiner = slice_combiner<Kernel, 1, 1, schedule_sm80::some_splits, true>;
  prim::cuda::let_next_grid_start();
  __threadfence();  // lengths are those of grids before the one that is waited for below
  const int sequence = args.kv_heads.quotient(static_cast<int>(blockIdx.x));
  const int kv_head = static_cast<int>(blockIdx.x) - sequence * args.call.kv_heads;
  const work_item item = planned_item<true>(args, sequence, config.block_kv);
  const work_tile work = single_work_tile(args, sequence, kv_head);
  prim::cuda::wait_for_grid_before();
  if (item.splits <= 1) return;
  const std::int64_t first = first_partial_of(args, item, kv_head, config.block_q);
  const int per_row = schedule_sm80::slices_of_row(args.partial_stride, 1);
#pragma unroll 1
  for (int slice = static_cast<int>(threadIdx.x) / prim::cuda::warp_size;
       slice < work.used * per_row; slice += combine_warps) {
    const int r = slice / per_row;
    const partial_run runs[2] = {{first + r * item.splits, item.splits}, {}};
    combiner::combine_runs(args, work.seq, query_of(args, kv_head, r), runs, slice - r * per_row);
  }
}

}  // namespace tessera::kernels::attention::sm80
