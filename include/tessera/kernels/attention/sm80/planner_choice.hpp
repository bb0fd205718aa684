// How a list of work (work_planner.hpp) cuts keys: the choices, how long a launch takes with each,
// and which of them is fastest.
#pragma once

#include <climits>
#include <cstdint>

#include <tessera/kernels/attention/sm80/planner_lists.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/prim/common/divisor.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

/// How many tiles of keys an item may have, by number of the choice.
__device__ __forceinline__ int keys_of_choice(int choice, std::int64_t key_tiles,
                                              std::int64_t row_tiles, int slots, int least) {
  if (choice == 0 || choice == shrinking_choice) return INT_MAX / 2;
  const std::int64_t room =
      choice == 1 ? slots - row_tiles : static_cast<std::int64_t>(waves_of_choice(choice)) * slots;
  if (room * 4 < slots) return INT_MAX / 2;
  return static_cast<int>(max(static_cast<std::int64_t>(least), (key_tiles + room - 1) / room));
}

/// Whether items may shrink towards the end of the list: there is more than one wave of them, and
/// their number stays within that of the choices, since the sum of 1 / n up to this many is below
/// `most_waves`.
__device__ __forceinline__ bool may_shrink(std::int64_t row_tiles, int heads, int slots) {
  constexpr int most_row_tiles = 1024;
  return row_tiles <= most_row_tiles && row_tiles * heads >= slots;
}

/// Parts of the keys of a tile of rows behind which there are `left` - 1: each has its share, of
/// all thread blocks that run at once, of what is left if no tile has more than `longest`. So
/// blocks end next to each other however fast each of them is (guided self-scheduling).
__device__ __forceinline__ int shrinking_items(int keys, int left, int longest, int heads,
                                               int slots, int least) {
  const float rest = static_cast<float>(left) * static_cast<float>(longest);
  const int share = __float2int_ru(rest * static_cast<float>(heads) / static_cast<float>(slots));
  const int each = max(4 * least, share);
  return max(1, (keys + each - 1) / each);
}

/// What a choice comes to.
struct planned_cost {
  std::int64_t items = 0;
  std::int64_t partials = 0;  ///< items of tiles that are cut
  int longest = 0;            ///< of items, in tiles of keys
  float rest = 0.0f;          ///< that keeps a last wave of items as long from being full
};

/// How long a launch takes, in tiles of keys: what each multiprocessor gets, and what it waits for
/// at the end. An item costs a tile besides its own, and what it leaves `partial_tiles`. `alike`:
/// the mean tile of rows over the longest. Where all are alike they end in waves; where they are
/// not, the last ones have a sixth of the longest at most (are_large).
__device__ __forceinline__ float time_of(const planned_cost& cost, std::int64_t key_tiles,
                                         int slots, int partial_tiles, float alike) {
  if (cost.items <= slots) return static_cast<float>(cost.longest + 1);
  const auto work = static_cast<float>(key_tiles + cost.items + partial_tiles * cost.partials);
  const float last = alike * cost.rest + (1.0f - alike) / 6.0f * static_cast<float>(cost.longest);
  return max(static_cast<float>(cost.longest + 1), work / static_cast<float>(slots)) + last;
}

/// Which choice is fastest, by the keys of the tiles from `first` on: state.best.
template <class Kernel, class Tiles>
__device__ __forceinline__ void choose_items(const launch_args& args, const Tiles& planned,
                                             planner_state& state, int first, int tiles, int slots,
                                             int least) {
  constexpr attention_config config = resolved(Kernel::config);
  constexpr int partial_tiles = (2 * config.block_q + config.block_kv - 1) / config.block_kv;
  const auto thread = static_cast<int>(threadIdx.x);
  const int heads = args.call.kv_heads;
  const std::int64_t row_tiles = static_cast<std::int64_t>(tiles - first) * heads;
  std::int64_t key_tiles = 0;
  if (thread < prim::cuda::warp_size) key_tiles = sum_of_warp(state.key_tiles[thread]) * heads;
  if (thread < planner_choices) {
    state.each[thread] = divisor_of(keys_of_choice(thread, key_tiles, row_tiles, slots, least));
  }
  __syncthreads();
  int items[planner_choices] = {};
  int partials[planner_choices] = {};
  for (int tile = first + thread; tile < tiles; tile += planner_threads) {
    const int keys = planned[tile].keys();
#pragma unroll
    for (int choice = 0; choice < planner_choices; ++choice) {
      const prim::divisor& each = state.each[choice];
      const int parts =
          choice == shrinking_choice
              ? shrinking_items(keys, tiles - tile, state.longest, heads, slots, least)
              : max(1, each.quotient(keys + static_cast<int>(each.value) - 1));
      items[choice] += parts;
      partials[choice] += parts > 1 ? parts : 0;
    }
  }
  const int lane = thread % prim::cuda::warp_size;
  int of_lane = 0;  // lane n: the sum of choice n
  int partials_of_lane = 0;
#pragma unroll
  for (int choice = 0; choice < planner_choices; ++choice) {
    const int sum = __reduce_add_sync(prim::cuda::all_lanes, items[choice]);
    const int sum_of_partials = __reduce_add_sync(prim::cuda::all_lanes, partials[choice]);
    of_lane = lane == choice ? sum : of_lane;
    partials_of_lane = lane == choice ? sum_of_partials : partials_of_lane;
  }
  if (of_lane != 0) atomicAdd(&state.items[lane], of_lane);
  if (partials_of_lane != 0) atomicAdd(&state.partials[lane], partials_of_lane);
  __syncthreads();
  if (thread < prim::cuda::warp_size) {
    // Times are positive: they are in the order of their bits.
    int time = INT_MAX;
    if (thread < planner_choices &&
        (thread != shrinking_choice || may_shrink(tiles - first, heads, slots))) {
      planned_cost cost;
      cost.items = static_cast<std::int64_t>(state.items[thread]) * heads;
      cost.partials = static_cast<std::int64_t>(state.partials[thread]) * heads;
      cost.longest = min(static_cast<int>(state.each[thread].value), state.longest);
      const float waves = static_cast<float>(cost.items) / static_cast<float>(slots);
      cost.rest = thread == shrinking_choice
                      ? static_cast<float>(4 * least)
                      : (ceilf(waves) - waves) * static_cast<float>(cost.longest);
      const float alike =
          static_cast<float>(key_tiles) /
          fmaxf(1.0f, static_cast<float>(row_tiles) * static_cast<float>(state.longest));
      time = __float_as_int(time_of(cost, key_tiles, slots, partial_tiles, alike));
    }
    const unsigned fastest =
        __ballot_sync(prim::cuda::all_lanes, time == prim::cuda::minimum_of_warp(time));
    if (thread == __ffs(static_cast<int>(fastest)) - 1) {
      state.best = state.each[thread];
      state.shrinks = thread == shrinking_choice;
    }
  }
  __syncthreads();
}

}  // namespace tessera::kernels::attention::sm80
