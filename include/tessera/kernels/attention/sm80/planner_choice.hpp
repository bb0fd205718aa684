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

/// Whether items of a decode row may shrink towards the end of the list: there is more than one
/// wave of them, and their number stays within that of the choices, since the sum of 1 / n up to
/// this many is below `most_waves`.
template <class Kernel>
__device__ __forceinline__ bool may_shrink(std::int64_t row_tiles, int heads, int slots) {
  constexpr int most_row_tiles = 1024;
  return resolved(Kernel::config).phase == attention_phase::decode && row_tiles <= most_row_tiles &&
         row_tiles * heads >= slots;
}

/// Parts of the keys of a tile of rows behind which there are `left` - 1: each has its share, of
/// all thread blocks that run at once, of what is left if no tile has more than the longest, whose
/// share is `longest_share`. So blocks end next to each other however fast each of them is (guided
/// self-scheduling).
__device__ __forceinline__ int shrinking_items(int keys, int left, float longest_share, int least) {
  const float each =
      fmaxf(static_cast<float>(4 * least), ceilf(static_cast<float>(left) * longest_share));
  return max(1, static_cast<int>(__fdividef(static_cast<float>(keys) + each - 0.5f, each)));
}
__device__ __forceinline__ float longest_share_of(int longest, int heads, int slots) {
  return __fdividef(static_cast<float>(longest) * static_cast<float>(heads),
                    static_cast<float>(slots));
}

/// What tiles of rows come to, whatever their keys are cut in.
struct planned_work {
  float row_tiles = 0.0f;
  float key_tiles = 0.0f;
  float partial = 0.0f;  ///< what an item of a tile that is cut leaves, in tiles of keys
  float alike = 1.0f;    ///< the mean tile of rows over the longest
};

/// Rows of prompts are bound by products: what their items leave, and that they are not alike, is
/// left out.
template <class Kernel>
__device__ __forceinline__ planned_work work_of(const launch_args& args, int tiles,
                                                std::int64_t key_tiles, int longest) {
  constexpr attention_config config = resolved(Kernel::config);
  const attention_kernel_args& call = args.call;
  planned_work work;
  work.row_tiles = static_cast<float>(max(1, tiles)) * static_cast<float>(call.kv_heads);
  work.key_tiles = static_cast<float>(key_tiles);
  if constexpr (config.phase == attention_phase::decode) {
    const std::int64_t tokens = call.cu_seqlens_q != nullptr ? call.q_len : call.batch * call.q_len;
    const float rows =
        __fdividef(static_cast<float>(tokens) * static_cast<float>(call.q_heads), work.row_tiles);
    work.partial = fminf(static_cast<float>(config.block_q), rows) * 2.0f / config.block_kv;
    work.alike = __fdividef(work.key_tiles, work.row_tiles * static_cast<float>(max(1, longest)));
  }
  return work;
}

/// How long a launch of so many items takes, in tiles of keys: what each multiprocessor gets, and
/// what it waits for at the end. An item costs a tile besides its own; a quarter more than the
/// items that cutting adds leave partial results. Where tiles of rows are alike a last wave lacks
/// `rest` to be full; where they are not, the last items have a sixth of the longest at most
/// (are_large).
__device__ __forceinline__ float time_of(const planned_work& work, std::int64_t items, int longest,
                                         float rest, int slots) {
  const auto of_longest = static_cast<float>(longest);
  if (items <= slots) return of_longest + 1.0f;
  const auto count = static_cast<float>(items);
  const float all = work.key_tiles + count + 1.25f * work.partial * (count - work.row_tiles);
  const float last = work.alike * rest + (1.0f - work.alike) / 6.0f * of_longest;
  return all / static_cast<float>(slots) + last;
}

/// Which choice is fastest, by the keys of the tiles from `first` on: state.best.
template <class Kernel, class Tiles>
__device__ __forceinline__ void choose_items(const launch_args& args, const Tiles& planned,
                                             planner_state& state, int first, int tiles, int slots,
                                             int least) {
  const auto thread = static_cast<int>(threadIdx.x);
  const int heads = args.call.kv_heads;
  const bool can_shrink = may_shrink<Kernel>(tiles - first, heads, slots);
  std::int64_t key_tiles = 0;
  if (thread < prim::cuda::warp_size) key_tiles = sum_of_warp(state.key_tiles[thread]) * heads;
  if (thread < planner_choices) {
    const std::int64_t row_tiles = static_cast<std::int64_t>(tiles - first) * heads;
    state.each[thread] = divisor_of(keys_of_choice(thread, key_tiles, row_tiles, slots, least));
  }
  __syncthreads();
  const float share = longest_share_of(state.longest, heads, slots);
  int items[planner_choices] = {};
  for (int tile = first + thread; tile < tiles; tile += planner_threads) {
    const int keys = planned[tile].keys();
#pragma unroll
    for (int choice = 0; choice < shrinking_choice; ++choice) {
      const prim::divisor& each = state.each[choice];
      items[choice] += max(1, each.quotient(keys + static_cast<int>(each.value) - 1));
    }
    if (can_shrink) items[shrinking_choice] += shrinking_items(keys, tiles - tile, share, least);
  }
  const int lane = thread % prim::cuda::warp_size;
  int of_lane = 0;  // lane n: the sum of choice n
#pragma unroll
  for (int choice = 0; choice < planner_choices; ++choice) {
    const int sum = __reduce_add_sync(prim::cuda::all_lanes, items[choice]);
    of_lane = lane == choice ? sum : of_lane;
  }
  if (of_lane != 0) atomicAdd(&state.items[lane], of_lane);
  __syncthreads();
  if (thread < prim::cuda::warp_size) {
    // Times are positive: they are in the order of their bits.
    int time = INT_MAX;
    const bool shrinks = thread == shrinking_choice;
    if (shrinks ? can_shrink : thread < planner_choices) {
      const planned_work work = work_of<Kernel>(args, tiles - first, key_tiles, state.longest);
      const std::int64_t count = static_cast<std::int64_t>(state.items[thread]) * heads;
      const int longest = min(static_cast<int>(state.each[thread].value), state.longest);
      const float waves = static_cast<float>(count) / static_cast<float>(slots);
      const float rest = shrinks ? static_cast<float>(least)
                                 : (ceilf(waves) - waves) * static_cast<float>(longest);
      time = __float_as_int(time_of(work, count, longest, rest, slots));
    }
    const unsigned fastest =
        __ballot_sync(prim::cuda::all_lanes, time == prim::cuda::minimum_of_warp(time));
    if (thread == __ffs(static_cast<int>(fastest)) - 1) {
      state.best = state.each[thread];
      state.shrinks = shrinks;
    }
  }
  __syncthreads();
}

}  // namespace tessera::kernels::attention::sm80
