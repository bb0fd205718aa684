// Writes the list of a launch's work (work_list.hpp): a few blocks, each of which looks at the
// lengths of all sequences, and writes its share of the items.
#pragma once

#include <climits>
#include <cstdint>

#include <tessera/families/attention/schedule_sm80.hpp>
#include <tessera/kernels/attention/sm80/planner_lists.hpp>
#include <tessera/kernels/attention/sm80/work_list.hpp>
#include <tessera/prim/common/divisor.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

/// Parts of the keys of a tile of rows, of `each` tiles of keys. Where they must not depend on the
/// batch, prompts have one, and others as many as their own keys say.
__device__ __forceinline__ int items_for(const launch_args& args, bool may_split, int key_tiles,
                                         const prim::divisor& each, int least) {
  if (args.call.batch_invariant) {
    if (!may_split) return 1;
    constexpr int most = schedule_sm80::most_invariant_splits;
    const int own = max(least, (key_tiles + most - 1) / most);
    return max(1, (key_tiles + own - 1) / own);
  }
  return max(1, each.quotient(key_tiles + static_cast<int>(each.value) - 1));
}

/// How many tiles of keys an item may have, by number of the choice.
__device__ __forceinline__ int keys_of_choice(int choice, std::int64_t key_tiles,
                                              std::int64_t row_tiles, int slots, int least) {
  if (choice == 0) return INT_MAX / 2;
  const std::int64_t room =
      choice == 1 ? slots - row_tiles : static_cast<std::int64_t>(waves_of_choice(choice)) * slots;
  if (room * 4 < slots) return INT_MAX / 2;
  return static_cast<int>(max(static_cast<std::int64_t>(least), (key_tiles + room - 1) / room));
}

/// How long a launch takes, in tiles of keys: what each multiprocessor gets, and what the last wave
/// lacks to be full. An item costs a tile besides its own.
__device__ __forceinline__ float time_of(std::int64_t items, std::int64_t key_tiles, int longest,
                                         int slots) {
  if (items <= slots) return static_cast<float>(longest + 1);
  const float waves = static_cast<float>(items) / static_cast<float>(slots);
  return static_cast<float>(key_tiles + items) / static_cast<float>(slots) +
         (ceilf(waves) - waves) * static_cast<float>(longest);
}

/// Tiles that the rows of an entry make.
template <class Kernel>
__device__ __forceinline__ int row_tiles_of(const launch_args& args, const work_entry& entry) {
  constexpr int rows = resolved(Kernel::config).block_q;
  constexpr int own = schedule_sm80::own_config(Kernel::config).block_q;
  return args.list.apart && !entry.is_prefix ? (entry.rows + own - 1) / own
                                             : (entry.rows + rows - 1) / rows;
}

/// Tile `part` of an entry, and its keys.
template <class Kernel>
__device__ __forceinline__ planned_tile planned_tile_of(const launch_args& args, int number,
                                                        int part) {
  constexpr attention_config config = resolved(Kernel::config);
  constexpr attention_config own = schedule_sm80::own_config(Kernel::config);
  const work_entry entry = entry_of(args, number, config.block_kv);
  const bool apart = args.list.apart && !entry.is_prefix;
  planned_tile planned;
  planned.entry = number;
  // The last rows of a sequence first: they see most keys.
  const int block_q = apart ? own.block_q : config.block_q;
  planned.first_row = (row_tiles_of<Kernel>(args, entry) - 1 - part) * block_q;
  const work_tile work = tile_of(entry, 0, planned.first_row, block_q);
  const auto visible = visibility_of_entry<config.mask>(args.call, entry.seq, entry.is_prefix);
  const key_range keys = visible_keys(args, work, visible, apart ? own.block_kv : config.block_kv);
  planned.first_tile = keys.first_tile;
  planned.last_tile = keys.last_tile;
  planned.joined = entry.is_prefix || entry.prefix >= 0;
  if (entry.prefix >= 0) {
    const int shared = whole_steps(args, static_cast<int>(keys_of_prefix(args.call, entry.prefix)),
                                   config.block_kv);
    planned.first_tile =
        max(keys.first_tile, apart ? shared / own.block_kv : shared / config.block_kv);
    planned.last_tile = max(keys.last_tile, planned.first_tile);
  }
  return planned;
}

/// Which choice is fastest, by the keys of the tiles from `first` on: state.best.
template <class Tiles>
__device__ __forceinline__ void choose_items(const launch_args& args, const Tiles& planned,
                                             planner_state& state, bool may_split, int first,
                                             int tiles, int slots, int least) {
  const auto thread = static_cast<int>(threadIdx.x);
  const auto heads = static_cast<std::int64_t>(args.call.kv_heads);
  std::int64_t key_tiles = 0;
  if (thread < planner_choices) {
    for (const long long of_warp : state.key_tiles) key_tiles += of_warp;
    key_tiles *= heads;
    state.each[thread] = prim::divisor::of(static_cast<std::uint32_t>(
        keys_of_choice(thread, key_tiles, (tiles - first) * heads, slots, least)));
  }
  __syncthreads();
  int items[planner_choices] = {};
  for (int tile = first + thread; tile < tiles; tile += planner_threads) {
    const int keys = planned[tile].last_tile - planned[tile].first_tile;
#pragma unroll
    for (int choice = 0; choice < planner_choices; ++choice) {
      items[choice] += items_for(args, may_split, keys, state.each[choice], least);
    }
  }
#pragma unroll
  for (int choice = 0; choice < planner_choices; ++choice) {
    const int sum = __reduce_add_sync(prim::cuda::all_lanes, items[choice]);
    if (thread % prim::cuda::warp_size == 0 && sum != 0) atomicAdd(&state.items[choice], sum);
  }
  __syncthreads();
  if (thread < prim::cuda::warp_size) {
    // Times are positive: they are in the order of their bits.
    int time = INT_MAX;
    if (thread < planner_choices) {
      const int each = static_cast<int>(state.each[thread].value);
      time = __float_as_int(
          time_of(state.items[thread] * heads, key_tiles, min(each, state.longest), slots));
    }
    const unsigned fastest =
        __ballot_sync(prim::cuda::all_lanes, time == prim::cuda::minimum_of_warp(time));
    if (thread == __ffs(static_cast<int>(fastest)) - 1) state.best = state.each[thread];
  }
  __syncthreads();
}

/// The place of item `at` in the order of blocks: those of groups, the first `shared` of all, are
/// spread over the launch, since they multiply more than they read.
__device__ __forceinline__ int place_in_order(int at, int shared, int count) {
  const auto others = static_cast<std::int64_t>(count - shared);
  if (at < shared) return at + static_cast<int>((at * others + shared - 1) / shared);
  return at - shared +
         static_cast<int>((at - shared) * static_cast<std::int64_t>(shared) / others) + 1;
}

/// The item where there is no room for what it leaves: it may overwrite what others do.
__device__ __forceinline__ work_item without_place(work_item item) {
  item.place = item.split = 0;
  item.splits = 1;
  return item;
}

/// Reads numbers that later passes look up, one after the other, so that they are near by then.
__device__ __forceinline__ void fetch_numbers(const attention_kernel_args& call) {
  const auto fetch = [](const std::int32_t* numbers, std::int64_t count, int first) {
    for (int i = first + static_cast<int>(threadIdx.x); i < count; i += planner_threads) {
      [[maybe_unused]] int read;
      asm volatile("ld.global.ca.s32 %0, [%1];" : "=r"(read) : "l"(numbers + i));
    }
  };
  if (call.prefixes.count > 0) {
    fetch(call.prefixes.sequences, call.prefixes.count + 1, 0);
    fetch(call.prefixes.pages, call.prefixes.count, 0);
  }
  // The first of these are read at once.
  if (call.seqlens_k != nullptr) fetch(call.seqlens_k, call.batch, planner_threads);
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
  if (thread == 0) {
    state.longest = state.longest_of_groups = 0;
    state.best = {};
  }
  if (thread < planner_choices) state.items[thread] = 0;
  prim::cuda::let_next_grid_start();
  prim::cuda::wait_for_grid_before();
  fetch_numbers(args.call);

  // Tiles of rows, and their keys.
  const int entries = entries_of(args.call);
  const int tiles =
      sums_of<1>(
          entries, {{list.most_tiles}}, state,
          [&](int entry) -> numbers<1> {
            const work_entry of = entry_of(args, entry, config.block_kv, false);
            return {{min(row_tiles_of<Kernel>(args, of), list.most_tiles)}};
          },
          [&](int entry, const numbers<1>& first) { first_tiles.set(entry, first.of[0]); })
          .of[0];
  const auto prefixes = static_cast<int>(args.call.prefixes.count);
  const int group_tiles = prefixes > 0 ? min(first_tiles[prefixes], tiles) : 0;
  const int apart_tiles = list.apart ? group_tiles : 0;
  long long key_tiles = 0;
  int longest = 0;
  int longest_of_groups = 0;
  visit_parts(first_tiles, entries, 0, 1, [&](int entry, int part, int tile) {
    const planned_tile planned = planned_tile_of<Kernel>(args, entry, part);
    planned_tiles.set(tile, planned);
    const int keys = planned.last_tile - planned.first_tile;
    if (tile < apart_tiles) {
      longest_of_groups = max(longest_of_groups, keys);
      return;
    }
    key_tiles += keys;
    longest = max(longest, keys);
  });
  if (longest_of_groups > 0) atomicMax(&state.longest_of_groups, longest_of_groups);
  for (unsigned step = prim::cuda::warp_size / 2; step > 0; step /= 2) {
    key_tiles += __shfl_xor_sync(prim::cuda::all_lanes, key_tiles, static_cast<int>(step));
  }
  longest = prim::cuda::maximum_of_warp(longest);
  if (thread % prim::cuda::warp_size == 0) {
    state.key_tiles[thread / prim::cuda::warp_size] = key_tiles;
    atomicMax(&state.longest, longest);
  }
  __syncthreads();
  if (!args.call.batch_invariant) {
    choose_items(args, planned_tiles, state, decodes, apart_tiles, tiles, slots, least);
  }

  // Items of the tiles, and where the partial results of those lie that are not finished at once.
  const prim::divisor each = state.best;
  const auto heads = args.call.kv_heads;
  const int splits_of_groups = max(1, list.group_slots / max(1, apart_tiles * heads));
  const int each_of_groups =
      max(1, (state.longest_of_groups + splits_of_groups - 1) / splits_of_groups);
  const int count = sums_of<2>(
                        tiles, {{INT_MAX, INT_MAX}}, state,
                        [&](int tile) -> numbers<2> {
                          const planned_tile& planned = planned_tiles[tile];
                          const int keys = planned.last_tile - planned.first_tile;
                          if (tile < apart_tiles) {
                            const int items = max(1, (keys + each_of_groups - 1) / each_of_groups);
                            return {{items, items * (config.block_q / own.block_q)}};
                          }
                          const int items = items_for(args, decodes, keys, each, least);
                          return {{items, items > 1 || planned.joined != 0 ? items : 0}};
                        },
                        [&](int tile, const numbers<2>& firsts) {
                          first_items.set(tile, firsts.of[0]);
                          first_places.set(tile, firsts.of[1]);
                        })
                        .of[0];
  const int of_groups = first_items[group_tiles];
  if (thread == 0 && blockIdx.x == 0) {
    list.tile_count[0] = tiles;
    list.tile_count[1] = count;
    list.tile_count[2] = of_groups;
  }
  const bool spreads = of_groups > 0 && count > of_groups && count <= list.most_items;
  const auto block = static_cast<int>(blockIdx.x);
  visit_parts(
      first_items, tiles, block, static_cast<int>(gridDim.x), [&](int tile, int part, int at) {
        if (at >= list.most_items) return;
        const planned_tile planned = planned_tiles[tile];
        work_item item;
        item.entry = planned.entry;
        item.first_row = planned.first_row;
        item.first_tile = planned.first_tile;
        item.last_tile = planned.last_tile;
        item.split = part;
        item.splits = first_items[tile + 1] - first_items[tile];
        cut_tiles(item.first_tile, item.last_tile, (item.last_tile - item.first_tile) / item.splits,
                  item.splits, item.split);
        const int place = first_places[tile];
        if (first_places[tile + 1] > place) item.place = place;
        // Groups that lie in each other, as numbers that nobody has looked at may say.
        if (list.apart && first_places[tile + 1] > list.most_places) item = without_place(item);
        list.items[at] = item;
        if (prefixes > 0) list.order[spreads ? place_in_order(at, of_groups, count) : at] = at;
      });
}

}  // namespace tessera::kernels::attention::sm80
