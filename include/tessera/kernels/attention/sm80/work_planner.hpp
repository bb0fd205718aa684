// Writes the list of a launch's work (work_list.hpp): one block, which looks at the lengths of all
// sequences.
#pragma once

#include <climits>
#include <cstdint>

#include <tessera/families/attention/schedule_sm80.hpp>
#include <tessera/kernels/attention/sm80/work_list.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

inline constexpr int planner_threads = 1024;

/// Numbers of tiles of keys that items may have at most: none is cut, then some that fill so many
/// waves of thread blocks.
inline constexpr int planner_choices = 2 + schedule_sm80::most_waves;

/// What the threads of the planner tell each other.
struct planner_state {
  int of_warps[planner_threads / prim::cuda::warp_size];
  unsigned long long key_tiles;  ///< of all tiles of rows
  int longest;                   ///< of one of them
  int items[planner_choices];
  int keys_of_item;  ///< in tiles, at most
};

/// Sum of `x` over the threads before this one; `total`: of all.
__device__ __forceinline__ int sum_before(int x, planner_state& state, int& total) {
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  const int warp = static_cast<int>(threadIdx.x) / prim::cuda::warp_size;
  const int sum = prim::cuda::inclusive_sum_of_warp(x, lane);
  __syncthreads();
  if (lane == prim::cuda::warp_size - 1) state.of_warps[warp] = sum;
  __syncthreads();
  static_assert(planner_threads == prim::cuda::warp_size * prim::cuda::warp_size);
  const int of_warps = prim::cuda::inclusive_sum_of_warp(state.of_warps[lane], lane);
  total = __shfl_sync(prim::cuda::all_lanes, of_warps, prim::cuda::warp_size - 1);
  const int before = __shfl_sync(prim::cuda::all_lanes, of_warps, max(warp - 1, 0));
  return (warp > 0 ? before : 0) + sum - x;
}

/// firsts[i] becomes the sum of `count_of(j)` over j < i, for i from 0 to `count`.
template <class CountOf>
__device__ __forceinline__ int sums_of(int* firsts, int count, planner_state& state,
                                       const CountOf& count_of) {
  int base = 0;
  for (int begin = 0; begin < count; begin += planner_threads) {
    const int i = begin + static_cast<int>(threadIdx.x);
    const int own = i < count ? count_of(i) : 0;
    int total = 0;
    const int before = sum_before(own, state, total);
    if (i < count) firsts[i] = base + before;
    base += total;
  }
  if (threadIdx.x == 0) firsts[count] = base;
  __syncthreads();
  return base;
}

/// The last i below `count` with firsts[i] <= number.
__device__ __forceinline__ int place_in(const int* firsts, int count, int number) {
  int low = 0;
  for (int high = count - 1; low < high;) {
    const int middle = (low + high + 1) / 2;
    if (firsts[middle] <= number) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

/// Parts of the keys of a tile of rows. Where they must not depend on the batch, prompts have one.
__device__ __forceinline__ int items_for(const launch_args& args, bool may_split, int key_tiles,
                                         int keys_of_item, int least) {
  if (args.call.batch_invariant) {
    if (!may_split) return 1;
    constexpr int most = schedule_sm80::most_invariant_splits;
    keys_of_item = max(least, (key_tiles + most - 1) / most);
  }
  return max(1, (key_tiles + keys_of_item - 1) / keys_of_item);
}

/// How many tiles of keys an item may have, by number of the choice: what fits in a wave with the
/// rest that each tile of rows has; then what fills some waves.
__device__ __forceinline__ int keys_of_choice(int choice, std::int64_t key_tiles,
                                              std::int64_t row_tiles, int slots, int least) {
  if (choice == 0) return INT_MAX / 2;
  std::int64_t room = static_cast<std::int64_t>(choice - 1) * slots;
  if (choice == 1) room = slots - row_tiles;
  if (room * 4 < slots) return INT_MAX / 2;
  return static_cast<int>(max(static_cast<std::int64_t>(least), (key_tiles + room - 1) / room));
}

/// How long a launch takes, in tiles of keys: a wave, or what each multiprocessor gets and half of
/// an item that ends late. An item costs a tile besides its own.
__device__ __forceinline__ float time_of(std::int64_t items, std::int64_t key_tiles, int longest,
                                         int slots) {
  if (items <= slots) return static_cast<float>(longest + 1);
  return static_cast<float>(key_tiles + items) / static_cast<float>(slots) +
         0.5f * static_cast<float>(longest);
}

/// A tile of rows, and its keys.
struct planned_tile {
  int entry, first_row;
  int first_tile, last_tile;
};
template <class Kernel>
__device__ __forceinline__ planned_tile planned_tile_of(const launch_args& args, int entries,
                                                        int tile) {
  constexpr attention_config config = resolved(Kernel::config);
  planned_tile planned;
  planned.entry = place_in(args.list.first_tiles, entries, tile);
  const work_entry entry = entry_of(args, planned.entry, config.block_kv);
  // The last rows of a sequence first: they see most keys.
  planned.first_row = (args.list.first_tiles[planned.entry + 1] - 1 - tile) * config.block_q;
  const work_tile work = tile_of(entry, 0, planned.first_row, config.block_q);
  const auto visible = visibility_of_entry<config.mask>(args.call, entry.seq, entry.is_prefix);
  const key_range keys = visible_keys(args, work, visible, config.block_kv);
  planned.first_tile = keys.first_tile;
  planned.last_tile = keys.last_tile;
  if (entry.prefix >= 0) {
    const auto shared = static_cast<int>(keys_of_prefix(args.call, entry.prefix));
    planned.first_tile = max(keys.first_tile, shared / config.block_kv);
    planned.last_tile = max(keys.last_tile, planned.first_tile);
  }
  return planned;
}

/// `slots`: thread blocks that run at the same time; `least`: tiles of keys that an item has.
template <class Kernel>
__global__ void __launch_bounds__(planner_threads, 1)
    plan_work(const __grid_constant__ launch_args args, int slots, int least) {
  __shared__ planner_state state;
  constexpr attention_config config = resolved(Kernel::config);
  constexpr bool decodes = config.phase == attention_phase::decode;
  const work_list& list = args.list;
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    state.key_tiles = 0;
    state.longest = 0;
  }
  if (thread < planner_choices) state.items[thread] = 0;
  prim::cuda::let_next_grid_start();
  prim::cuda::wait_for_grid_before();

  const int entries = entries_of(args.call);
  const int all_tiles = sums_of(list.first_tiles, entries, state, [&](int entry) {
    const int rows = entry_of(args, entry, config.block_kv).rows;
    return (rows + config.block_q - 1) / config.block_q;
  });
  const int tiles = min(all_tiles, list.most_tiles);

  // How much there is to do, and which choice is fastest.
  unsigned long long key_tiles = 0;
  int longest = 0;
  for (int tile = thread; tile < tiles; tile += planner_threads) {
    const planned_tile planned = planned_tile_of<Kernel>(args, entries, tile);
    const int keys = planned.last_tile - planned.first_tile;
    list.first_items[tile] = keys;
    key_tiles += static_cast<unsigned long long>(keys);
    longest = max(longest, keys);
  }
  atomicAdd(&state.key_tiles, key_tiles);
  atomicMax(&state.longest, longest);
  __syncthreads();
  const auto heads = static_cast<std::int64_t>(args.call.kv_heads);
  const auto all_keys = static_cast<std::int64_t>(state.key_tiles) * heads;
  int items[planner_choices] = {};
  for (int tile = thread; tile < tiles; tile += planner_threads) {
#pragma unroll
    for (int choice = 0; choice < planner_choices; ++choice) {
      const int each = keys_of_choice(choice, all_keys, tiles * heads, slots, least);
      items[choice] += items_for(args, decodes, list.first_items[tile], each, least);
    }
  }
#pragma unroll
  for (int choice = 0; choice < planner_choices; ++choice) {
    const int sum = __reduce_add_sync(prim::cuda::all_lanes, items[choice]);
    if (thread % prim::cuda::warp_size == 0 && sum != 0) atomicAdd(&state.items[choice], sum);
  }
  __syncthreads();
  if (thread == 0) {
    float best = INFINITY;
    for (int choice = 0; choice < planner_choices; ++choice) {
      const int each = keys_of_choice(choice, all_keys, tiles * heads, slots, least);
      const float time =
          time_of(state.items[choice] * heads, all_keys, min(each, state.longest), slots);
      if (time < best) state.keys_of_item = each;
      best = fminf(best, time);
    }
  }
  __syncthreads();

  // Items of the tiles, then where the partial results of those lie that are not finished at once.
  const int each = state.keys_of_item;
  const int count = sums_of(list.first_items, tiles, state, [&](int tile) {
    return items_for(args, decodes, list.first_items[tile], each, least);
  });
  if (thread == 0) {
    list.tile_count[0] = tiles;
    list.tile_count[1] = count;
  }
  const auto prefixes = static_cast<int>(args.call.prefixes.count);
  sums_of(list.first_places, tiles, state, [&](int tile) {
    const int items_of_tile = list.first_items[tile + 1] - list.first_items[tile];
    if (items_of_tile > 1) return items_of_tile;
    if (prefixes == 0) return 0;
    const int entry = place_in(list.first_tiles, entries, tile);
    const bool joined = entry < prefixes || entry_of(args, entry, config.block_kv).prefix >= 0;
    return joined ? 1 : 0;
  });
  for (int at = thread; at < min(count, list.most_items); at += planner_threads) {
    const int tile = place_in(list.first_items, tiles, at);
    const planned_tile planned = planned_tile_of<Kernel>(args, entries, tile);
    work_item item;
    item.entry = planned.entry;
    item.first_row = planned.first_row;
    item.first_tile = planned.first_tile;
    item.last_tile = planned.last_tile;
    item.split = at - list.first_items[tile];
    item.splits = list.first_items[tile + 1] - list.first_items[tile];
    cut_tiles(item.first_tile, item.last_tile, item.splits, item.split);
    const int place = list.first_places[tile];
    if (list.first_places[tile + 1] > place) item.place = place;
    list.items[at] = item;
  }
}

}  // namespace tessera::kernels::attention::sm80
