// Writes the list of a launch's work (work_list.hpp): a few blocks, each of which looks at the
// lengths of all sequences, and writes its share of the items.
#pragma once

#include <climits>
#include <cstdint>

#include <tessera/families/attention/schedule_sm80.hpp>
#include <tessera/kernels/attention/sm80/planner_choice.hpp>
#include <tessera/kernels/attention/sm80/planner_lists.hpp>
#include <tessera/kernels/attention/sm80/work_list.hpp>
#include <tessera/prim/common/divisor.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

/// Parts of the keys of a tile of rows, of `each` tiles of keys. Where they must not depend on the
/// batch, prompts have one, and others as many as their own keys say.
__device__ __forceinline__ int items_for(const launch_args& args, bool may_split, int key_tiles,
                                         const prim::divisor& each, int least) {
  if (args.call.batch_invariant) [[unlikely]] {
    if (!may_split) return 1;
    constexpr int most = schedule_sm80::most_invariant_splits;
    const int own = max(least, (key_tiles + most - 1) / most);
    return max(1, (key_tiles + own - 1) / own);
  }
  return max(1, each.quotient(key_tiles + static_cast<int>(each.value) - 1));
}

/// Tiles that the rows of an entry make.
template <class Kernel>
__device__ __forceinline__ int row_tiles_of(const launch_args& args, const work_entry& entry) {
  constexpr int rows = resolved(Kernel::config).block_q;
  constexpr int own = schedule_sm80::own_config(Kernel::config).block_q;
  return args.list.apart && !entry.is_prefix ? (entry.rows + own - 1) / own
                                             : (entry.rows + rows - 1) / rows;
}

/// The keys that the group of a sequence shares, in whole tiles; -1: it has no group. As
/// prefix_of_sequence finds them, whatever the numbers of the device are.
template <class Kernel, bool Single>
__device__ __forceinline__ int keys_of_group(const launch_args& args, const planner_state& state,
                                             int sequence) {
  const auto groups = static_cast<int>(args.call.prefixes.count);
  if (!Single && groups > planner_groups) {
    const auto prefix = prefix_of_sequence(args.call, sequence);
    return prefix < 0 ? -1
                      : whole_steps(args, static_cast<int>(keys_of_prefix(args.call, prefix)),
                                    resolved(Kernel::config).block_kv);
  }
  int low = 0;
  for (int high = groups; low < high;) {
    const int middle = (low + high) / 2;
    const bool before = state.group_begins[middle + 1] <= sequence;
    low = before ? middle + 1 : low;
    high = before ? high : middle;
  }
  return low < groups && state.group_begins[low] <= sequence ? state.group_keys[low] : -1;
}

/// Single last tokens of all sequences, and the planner has what groups share in shared memory.
__device__ __forceinline__ bool plans_single_queries(const attention_kernel_args& call) {
  return has_last_tokens(call) && call.num_seqs == nullptr && call.prefixes.count <= planner_groups;
}

/// As entry_of, without the prefix. Of single queries few numbers are looked at: thousands of
/// entries pass through one multiprocessor.
template <class Kernel, bool Single>
__device__ __forceinline__ work_entry entry_in_plan(const launch_args& args,
                                                    const planner_state& state, int number) {
  if constexpr (!Single) return entry_of(args, number, resolved(Kernel::config).block_kv, false);
  const attention_kernel_args& call = args.call;
  const auto groups = static_cast<int>(call.prefixes.count);
  const auto batch = static_cast<int>(call.batch);
  work_entry of;
  of.is_prefix = number < groups;
  if (of.is_prefix) {
    const int keys = state.group_keys[number];
    const int begin = max(0, min(state.group_begins[number], batch));
    const int end = max(0, min(state.group_begins[number + 1], batch));
    of.seq.k_len = keys;
    of.seq.q_len = keys > 0 ? end - begin : 0;
  } else {
    of.seq.q_len = 1;
    of.seq.k_len = cut_to(cut_to(call.seqlens_k[number - groups], call.kv_len), call.most_keys);
  }
  of.rows = static_cast<int>(of.seq.q_len) * static_cast<int>(args.group.value);
  return of;
}

/// Keys of a tile of rows of an entry, in tiles of `block_kv`, a constant.
template <mask_mode Mode, bool Single>
__device__ __forceinline__ key_range keys_of_tile(const launch_args& args, const work_entry& entry,
                                                  const work_tile& work, int block_kv) {
  if (entry.is_prefix) {
    key_range keys;
    keys.last_tile = static_cast<int>(entry.seq.k_len) / block_kv;
    return keys;
  }
  if constexpr (Single) return keys_of_single(args, work, block_kv);
  return visible_keys(args, work, visibility_of<Mode>(args.call, entry.seq), block_kv);
}

/// Tile `part` of an entry, and its keys.
template <class Kernel, bool Single>
__device__ __forceinline__ planned_tile planned_tile_of(const launch_args& args,
                                                        const planner_state& state, int number,
                                                        int part) {
  constexpr attention_config config = resolved(Kernel::config);
  constexpr attention_config own = schedule_sm80::own_config(Kernel::config);
  const work_entry entry = entry_in_plan<Kernel, Single>(args, state, number);
  const bool apart =
      schedule_sm80::has_own_kernel(Kernel::config) && args.list.apart && !entry.is_prefix;
  planned_tile planned;
  planned.entry = number;
  // The last rows of a sequence first: they see most keys.
  const int block_q = apart ? own.block_q : config.block_q;
  planned.first_row = (row_tiles_of<Kernel>(args, entry) - 1 - part) * block_q;
  const work_tile work = tile_of(entry, 0, planned.first_row, block_q);
  const key_range keys =
      apart ? keys_of_tile<config.mask, Single>(args, entry, work, own.block_kv)
            : keys_of_tile<config.mask, Single>(args, entry, work, config.block_kv);
  planned.first_tile = keys.first_tile;
  planned.last_tile = static_cast<unsigned>(keys.last_tile);
  planned.joined = entry.is_prefix ? 1 : 0;
  const auto prefixes = static_cast<int>(args.call.prefixes.count);
  if (prefixes > 0 && !entry.is_prefix && entry.used) {
    const int shared = keys_of_group<Kernel, Single>(args, state, number - prefixes);
    if (shared >= 0) {
      planned.joined = 1;
      planned.first_tile =
          max(keys.first_tile, apart ? shared / own.block_kv : shared / config.block_kv);
      planned.last_tile = static_cast<unsigned>(max(keys.last_tile, planned.first_tile));
    }
  }
  return planned;
}

/// How many of the tiles of rows, of which there are `tiles`, are those of groups.
template <class FirstTiles>
__device__ __forceinline__ int tiles_of_groups(const launch_args& args,
                                               const FirstTiles& first_tiles, int tiles) {
  const auto groups = static_cast<int>(args.call.prefixes.count);
  return groups > 0 ? min(first_tiles[groups], tiles) : 0;
}

/// Tiles of rows and their keys, and how many keys those have that are cut; returns how many there
/// are. `Single`: of single queries, which have code of their own, so that it is short.
template <class Kernel, bool Single, class Tiles, class FirstTiles>
__device__ __forceinline__ int plan_tiles(const launch_args& args, const Tiles& planned_tiles,
                                          const FirstTiles& first_tiles, planner_state& state) {
  const work_list& list = args.list;
  const int entries = entries_of(args.call);
  const int tiles =
      sums_of<1>(
          entries, {{list.most_tiles}}, state,
          [&](int entry) -> numbers<1> {
            const work_entry of = entry_in_plan<Kernel, Single>(args, state, entry);
            return {{min(row_tiles_of<Kernel>(args, of), list.most_tiles)}};
          },
          [&](int entry, const numbers<1>& first) { first_tiles.set(entry, first.of[0]); })
          .of[0];
  const int apart_tiles = list.apart ? tiles_of_groups(args, first_tiles, tiles) : 0;
  const auto groups = static_cast<int>(args.call.prefixes.count);
  long long key_tiles = 0;
  int longest = 0;
  int longest_of_groups = 0;
  visit_parts(first_tiles, groups, entries, 0, 1, [&](int entry, int part, int tile) {
    const planned_tile planned = planned_tile_of<Kernel, Single>(args, state, entry, part);
    planned_tiles.set(tile, planned);
    const int keys = planned.keys();
    if (tile < apart_tiles) {
      longest_of_groups = max(longest_of_groups, keys);
      return;
    }
    key_tiles += keys;
    longest = max(longest, keys);
  });
  if (longest_of_groups > 0) atomicMax(&state.longest_of_groups, longest_of_groups);
  key_tiles = sum_of_warp(key_tiles);
  longest = prim::cuda::maximum_of_warp(longest);
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread % prim::cuda::warp_size == 0) {
    state.key_tiles[thread / prim::cuda::warp_size] = key_tiles;
    atomicMax(&state.longest, longest);
  }
  __syncthreads();
  return tiles;
}

/// The item where there is no room for what it leaves: it may overwrite what others do.
__device__ __forceinline__ work_item without_place(work_item item) {
  item.place = item.split = 0;
  item.splits = 1;
  return item;
}

/// Numbers that later passes look up: what groups share, and lengths, which are read one after the
/// other so that they are near by then.
template <class Kernel>
__device__ __forceinline__ void fetch_numbers(const launch_args& args, planner_state& state) {
  const attention_kernel_args& call = args.call;
  const auto thread = static_cast<int>(threadIdx.x);
  if (call.seqlens_k != nullptr) {
    for (int i = thread; i < call.batch; i += planner_threads) {
      [[maybe_unused]] int read;
      asm volatile("ld.global.ca.s32 %0, [%1];" : "=r"(read) : "l"(call.seqlens_k + i));
    }
  }
  const std::int64_t groups = call.prefixes.count;
  if (groups == 0 || groups > planner_groups || thread > groups) return;
  state.group_begins[thread] = call.prefixes.sequences[thread];
  if (thread < groups) {
    state.group_keys[thread] = whole_steps(args, static_cast<int>(keys_of_prefix(call, thread)),
                                           resolved(Kernel::config).block_kv);
  }
}

/// `slots`: thread blocks that run at the same time; `least`: tiles of keys that an item has.
template <class Kernel>
__global__ void __launch_bounds__(planner_threads, 1)
    plan_work(const __grid_constant__ launch_args args, int slots, int least) {
  // As bytes: variables of a block have no constructors.
  __shared__ __align__(alignof(planner_state)) unsigned char memory[sizeof(planner_state)];
  planner_state& state = *reinterpret_cast<planner_state*>(memory);
  constexpr attention_config config = resolved(Kernel::config);
  constexpr attention_config own = schedule_sm80::own_config(Kernel::config);
  static_assert(
      !schedule_sm80::has_own_kernel(Kernel::config) || 2 * config.block_kv % own.block_kv == 0,
      "whole_steps leaves whole tiles of the kernel beside");
  constexpr bool decodes = config.phase == attention_phase::decode;
  const work_list& list = args.list;
  const auto thread = static_cast<int>(threadIdx.x);
  const near_list<planned_tile, false> planned_tiles{state.tiles, list.tiles};
  const near_list<int, true> first_tiles{state.first_tiles, list.first_tiles};
  const near_list<int, true> first_items{state.first_items, list.first_items};
  const near_list<int, false> first_places{state.first_places, list.first_places};
  const near_list<int, false> first_large{state.first_tiles, list.first_large};
  if (thread == 0) {
    state.longest = state.longest_of_groups = 0;
    state.best = {};
    state.shrinks = false;
  }
  if (thread < planner_choices) state.items[thread] = 0;
  prim::cuda::let_next_grid_start();
  prim::cuda::wait_for_grid_before();
  fetch_numbers<Kernel>(args, state);
  __syncthreads();

  const int tiles = plans_single_queries(args.call)
                        ? plan_tiles<Kernel, true>(args, planned_tiles, first_tiles, state)
                        : plan_tiles<Kernel, false>(args, planned_tiles, first_tiles, state);
  const int group_tiles = tiles_of_groups(args, first_tiles, tiles);
  const int apart_tiles = list.apart ? group_tiles : 0;
  if (!args.call.batch_invariant) {
    choose_items<Kernel>(args, planned_tiles, state, apart_tiles, tiles, slots, least);
  }

  // Items of the tiles, and where the partial results of those lie that are not finished at once.
  const prim::divisor each = state.best;
  const float share = longest_share_of(state.longest, args.call.kv_heads, slots);
  const auto heads = args.call.kv_heads;
  int each_of_groups = 1;
  if (apart_tiles > 0) {
    const int splits = max(1, list.group_slots / max(1, apart_tiles * heads));
    each_of_groups = max(1, (state.longest_of_groups + splits - 1) / splits);
  }
  const bool large_first = args.call.prefixes.count == 0 && !args.call.batch_invariant;
  const int most_of_item = min(static_cast<int>(each.value), state.longest);
  const int count =
      sums_of<3>(
          tiles, {{INT_MAX, INT_MAX, INT_MAX}}, state,
          [&](int tile) -> numbers<3> {
            const planned_tile planned = planned_tiles[tile];
            const int keys = planned.keys();
            if (tile < apart_tiles) {
              const int items = max(1, (keys + each_of_groups - 1) / each_of_groups);
              return {{items, items * (config.block_q / own.block_q), 0}};
            }
            const int items = decodes && state.shrinks
                                  ? shrinking_items(keys, tiles - tile, share, least)
                                  : items_for(args, decodes, keys, each, least);
            const bool large = large_first && are_large(keys, items, most_of_item);
            return {{items, items > 1 || planned.joined != 0 ? items : 0, large ? items : 0}};
          },
          [&](int tile, const numbers<3>& firsts) {
            first_items.set(tile, firsts.of[0]);
            first_places.set(tile, firsts.of[1]);
            first_large.set(tile, firsts.of[2]);
          })
          .of[0];
  const int of_groups = first_items[group_tiles];
  const int all_large = first_large[tiles];
  const bool ordered = args.call.prefixes.count > 0 ||
                       (all_large > 0 && all_large < count && count <= list.most_items);
  if (thread == 0 && blockIdx.x == 0) {
    list.tile_count[0] = tiles;
    list.tile_count[1] = count;
    list.tile_count[2] = of_groups;
    list.tile_count[3] = ordered ? 1 : 0;
  }
  const bool spreads = of_groups > 0 && count > of_groups && count <= list.most_items;
  const auto block = static_cast<int>(blockIdx.x);
  visit_parts(
      first_items, group_tiles, tiles, block, static_cast<int>(gridDim.x),
      [&](int tile, int part, int at) {
        if (at >= list.most_items) return;
        const planned_tile planned = planned_tiles[tile];
        work_item item;
        item.entry = planned.entry;
        item.first_row = planned.first_row;
        item.first_tile = planned.first_tile;
        item.last_tile = static_cast<int>(planned.last_tile);
        item.split = part;
        item.splits = first_items[tile + 1] - first_items[tile];
        if (item.splits > 1) {
          cut_tiles(item.first_tile, item.last_tile,
                    (item.last_tile - item.first_tile) / item.splits, item.splits, item.split);
        }
        const int place = first_places[tile];
        if (first_places[tile + 1] > place) item.place = place;
        // Groups that lie in each other, as numbers that nobody has looked at may say.
        if (list.apart && first_places[tile + 1] > list.most_places) item = without_place(item);
        list.items[at] = item;
        if (!ordered) return;
        const int turn = spreads       ? place_in_order(at, of_groups, count)
                         : large_first ? place_by_size(first_large, tile, part, at, all_large)
                                       : at;
        list.order[turn] = at;
      });
}

}  // namespace tessera::kernels::attention::sm80
