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

/// Numbers of tiles of keys that items may have at most: any; what fits in one wave of thread
/// blocks beside the rest of each tile of rows; what fills 1, 2, 3, 4, 6 or 8 waves.
inline constexpr int planner_choices = 8;
constexpr int waves_of_choice(int choice) {
  return choice < 6 ? choice - 1 : 2 * (choice - 3);
}
static_assert(waves_of_choice(planner_choices - 1) == schedule_sm80::most_waves);
inline constexpr int planner_warps = planner_threads / prim::cuda::warp_size;
static_assert(planner_warps == prim::cuda::warp_size);

/// What the threads of the planner tell each other.
struct planner_state {
  int of_warps[planner_warps];
  long long key_tiles[planner_warps];  ///< of all tiles of rows
  int longest;                         ///< of one of them
  int each[planner_choices];           ///< tiles of keys of an item, by choice
  int items[planner_choices];
  int best;
};

/// Sum of `x` over the threads before this one; `total`: of all.
__device__ __forceinline__ int sum_before(int x, planner_state& state, int& total) {
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  const int warp = static_cast<int>(threadIdx.x) / prim::cuda::warp_size;
  const int sum = prim::cuda::inclusive_sum_of_warp(x, lane);
  __syncthreads();
  if (lane == prim::cuda::warp_size - 1) state.of_warps[warp] = sum;
  __syncthreads();
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

/// visit(i, part, n) for each i below `count`, which has the parts firsts[i] = n to firsts[i + 1] -
/// 1, counted from 0: by a thread, or if they are many by a warp.
template <class Visit>
__device__ __forceinline__ void visit_parts(const int* firsts, int count, const Visit& visit) {
  constexpr int few = 4;
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  for (int begin = 0; begin < count; begin += planner_threads) {
    const int i = begin + static_cast<int>(threadIdx.x);
    const int first = i < count ? firsts[i] : 0;
    const int parts = i < count ? firsts[i + 1] - first : 0;
    for (int part = 0; part < parts && parts <= few; ++part) visit(i, part, first + part);
    unsigned many = __ballot_sync(prim::cuda::all_lanes, parts > few);
    for (; many != 0; many &= many - 1) {
      const int from = __ffs(static_cast<int>(many)) - 1;
      const int its_parts = __shfl_sync(prim::cuda::all_lanes, parts, from);
      const int its_first = __shfl_sync(prim::cuda::all_lanes, first, from);
      for (int part = lane; part < its_parts; part += prim::cuda::warp_size) {
        visit(i - lane + from, part, its_first + part);
      }
    }
  }
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

/// Tile `part` of an entry, and its keys.
template <class Kernel>
__device__ __forceinline__ planned_tile planned_tile_of(const launch_args& args, int number,
                                                        int part) {
  constexpr attention_config config = resolved(Kernel::config);
  const work_entry entry = entry_of(args, number, config.block_kv);
  planned_tile planned;
  planned.entry = number;
  // The last rows of a sequence first: they see most keys.
  const int tiles = (entry.rows + config.block_q - 1) / config.block_q;
  planned.first_row = (tiles - 1 - part) * config.block_q;
  const work_tile work = tile_of(entry, 0, planned.first_row, config.block_q);
  const auto visible = visibility_of_entry<config.mask>(args.call, entry.seq, entry.is_prefix);
  const key_range keys = visible_keys(args, work, visible, config.block_kv);
  planned.first_tile = keys.first_tile;
  planned.last_tile = keys.last_tile;
  planned.joined = entry.is_prefix || entry.prefix >= 0;
  if (entry.prefix >= 0) {
    const auto shared = static_cast<int>(keys_of_prefix(args.call, entry.prefix));
    planned.first_tile = max(keys.first_tile, shared / config.block_kv);
    planned.last_tile = max(keys.last_tile, planned.first_tile);
  }
  return planned;
}

/// Which choice is fastest, by the keys of the tiles: state.best.
__device__ __forceinline__ void choose_items(const launch_args& args, planner_state& state,
                                             bool may_split, int tiles, int slots, int least) {
  const auto thread = static_cast<int>(threadIdx.x);
  const auto heads = static_cast<std::int64_t>(args.call.kv_heads);
  std::int64_t key_tiles = 0;
  for (const long long of_warp : state.key_tiles) key_tiles += of_warp * heads;
  if (thread < planner_choices) {
    state.each[thread] = keys_of_choice(thread, key_tiles, tiles * heads, slots, least);
  }
  __syncthreads();
  int items[planner_choices] = {};
  for (int tile = thread; tile < tiles; tile += planner_threads) {
    const planned_tile& planned = args.list.tiles[tile];
    const int keys = planned.last_tile - planned.first_tile;
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
  if (thread == 0) {
    float least_time = INFINITY;
    for (int choice = 0; choice < planner_choices; ++choice) {
      const int each = state.each[choice];
      const float time =
          time_of(state.items[choice] * heads, key_tiles, min(each, state.longest), slots);
      if (time < least_time) state.best = each;
      least_time = fminf(least_time, time);
    }
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

/// `slots`: thread blocks that run at the same time; `least`: tiles of keys that an item has.
template <class Kernel>
__global__ void __launch_bounds__(planner_threads, 1)
    plan_work(const __grid_constant__ launch_args args, int slots, int least) {
  __shared__ planner_state state;
  constexpr attention_config config = resolved(Kernel::config);
  constexpr bool decodes = config.phase == attention_phase::decode;
  const work_list& list = args.list;
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread == 0) state.longest = 0;
  if (thread < planner_choices) state.items[thread] = 0;
  prim::cuda::let_next_grid_start();
  prim::cuda::wait_for_grid_before();

  // Tiles of rows, and their keys.
  const int entries = entries_of(args.call);
  const int all_tiles = sums_of(list.first_tiles, entries, state, [&](int entry) {
    const int rows = entry_of(args, entry, config.block_kv).rows;
    return (rows + config.block_q - 1) / config.block_q;
  });
  const int tiles = min(all_tiles, list.most_tiles);
  long long key_tiles = 0;
  int longest = 0;
  visit_parts(list.first_tiles, entries, [&](int entry, int part, int tile) {
    if (tile >= list.most_tiles) return;
    const planned_tile planned = planned_tile_of<Kernel>(args, entry, part);
    list.tiles[tile] = planned;
    key_tiles += planned.last_tile - planned.first_tile;
    longest = max(longest, planned.last_tile - planned.first_tile);
  });
  for (unsigned step = prim::cuda::warp_size / 2; step > 0; step /= 2) {
    key_tiles += __shfl_xor_sync(prim::cuda::all_lanes, key_tiles, static_cast<int>(step));
  }
  longest = prim::cuda::maximum_of_warp(longest);
  if (thread % prim::cuda::warp_size == 0) {
    state.key_tiles[thread / prim::cuda::warp_size] = key_tiles;
    atomicMax(&state.longest, longest);
  }
  __syncthreads();
  choose_items(args, state, decodes, tiles, slots, least);

  // Items of the tiles, then where the partial results of those lie that are not finished at once.
  const int each = state.best;
  const int count = sums_of(list.first_items, tiles, state, [&](int tile) {
    const planned_tile& planned = list.tiles[tile];
    return items_for(args, decodes, planned.last_tile - planned.first_tile, each, least);
  });
  if (thread == 0) {
    list.tile_count[0] = tiles;
    list.tile_count[1] = count;
  }
  sums_of(list.first_places, tiles, state, [&](int tile) {
    const int items = list.first_items[tile + 1] - list.first_items[tile];
    return items > 1 || list.tiles[tile].joined != 0 ? items : 0;
  });
  const auto prefixes = static_cast<int>(args.call.prefixes.count);
  const int of_groups = prefixes > 0 ? list.first_items[min(list.first_tiles[prefixes], tiles)] : 0;
  const bool spreads = of_groups > 0 && count > of_groups && count <= list.most_items;
  visit_parts(list.first_items, tiles, [&](int tile, int part, int at) {
    if (at >= list.most_items) return;
    const planned_tile planned = list.tiles[tile];
    work_item item;
    item.entry = planned.entry;
    item.first_row = planned.first_row;
    item.first_tile = planned.first_tile;
    item.last_tile = planned.last_tile;
    item.split = part;
    item.splits = list.first_items[tile + 1] - list.first_items[tile];
    cut_tiles(item.first_tile, item.last_tile, item.splits, item.split);
    const int place = list.first_places[tile];
    if (list.first_places[tile + 1] > place) item.place = place;
    list.items[at] = item;
    if (prefixes > 0) list.order[spreads ? place_in_order(at, of_groups, count) : at] = at;
  });
}

}  // namespace tessera::kernels::attention::sm80
