// What the kernels of state spaces share: how a launch is cut into blocks of channels, its
// workspace, and the place of a thread in the states of a block.
//
// A warp has 8 channels and 16 states of each, a thread one channel and 4 states next to each
// other. The 8 warps of a block lie side by side over states first (1, 2, 4 or 8 slices), then over
// channels: 64 channels of 16 states, up to 8 of 128. More states are gone through tile by tile.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/selective_scan/sm80/chunks.hpp>
#include <tessera/kernels/selective_scan/sm80/queue.hpp>
#include <tessera/prim/common/divisor.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cuda/numbers.hpp>

namespace tessera::kernels::selective_scan::sm80 {

inline constexpr int block_warps = block_threads / 32;
inline constexpr int stage_tokens = 16;  ///< whose rows are in shared memory at a time
inline constexpr int thread_states = 4;
inline constexpr int warp_states = 16;
inline constexpr int most_channels = 64;  ///< of a block
inline constexpr int most_states = 128;

/// How a launch is cut.
struct state_space_cut {
  int log_slices = 0;
  bool carried = false;     ///< a sequence may have several chunks
  std::int64_t blocks = 0;  ///< of channels
  std::int64_t blocks_of_head = 1;
  std::int64_t tiles = 1;  ///< of states
  std::int64_t slots = 0;
  std::int64_t channels_of_call = 0;
  std::int64_t state_stride = 0;  ///< floats of a channel's states in the workspace
  prim::divisor columns_of_head{};

  static state_space_cut of(const state_space_kernel_args& args) {
    state_space_cut cut;
    while (cut.log_slices < 3 && cut.states() < args.states) ++cut.log_slices;
    cut.carried = has_carries(args.sequences);
    cut.blocks_of_head =
        std::max<std::int64_t>(1, (args.columns + cut.channels() - 1) / cut.channels());
    cut.blocks = args.heads * cut.blocks_of_head;
    cut.tiles = std::max<std::int64_t>(1, (args.states + cut.states() - 1) / cut.states());
    cut.slots = slots_of(args.sequences);
    cut.channels_of_call = args.heads * args.columns;
    cut.state_stride = (args.states + thread_states - 1) / thread_states * thread_states;
    cut.columns_of_head = prim::divisor::of(
        static_cast<std::uint32_t>(std::clamp<std::int64_t>(args.columns, 1, INT32_MAX)));
    return cut;
  }
  TESSERA_HD int log_channels() const { return 6 - log_slices; }
  TESSERA_HD int channels() const { return most_channels >> log_slices; }
  TESSERA_HD int log_states() const { return 4 + log_slices; }
  TESSERA_HD int states() const { return warp_states << log_slices; }
};

/// The workspace of a launch. Rows are tokens of all entries.
struct state_space_memory {
  float* states = nullptr;     ///< [slots][channels][stride]: of a chunk alone, then in front of it
  float* gradients = nullptr;  ///< likewise, backwards; at last what a chunk adds to d_A
  float* step_sums = nullptr;  ///< [slots][channels, or heads]: steps of a chunk
  float* columns = nullptr;    ///< [rows][channels]: h C + D x, or its gradient
  float* sums = nullptr;       ///< [3][rows][channels], of the tiles before; several tiles
  float* groups = nullptr;     ///< [rows][owners][2][states]: shares of d_B and d_C
  float* parameters = nullptr;  ///< [slots][3][channels, or heads]: of d_D, d_dt_bias, d_A
  float* skips = nullptr;       ///< [slots][channels]: of a d_D of columns; state_space_v2
  float* weights = nullptr;     ///< [segments][channels]: of d_norm_weight
};

struct state_space_launch {
  state_space_kernel_args call{};
  state_space_cut cut{};
  state_space_memory memory{};
};

/// Columns [first, first + columns) of a head.
struct channel_block {
  std::int64_t head = 0, first = 0;
  int columns = 0;
};
__device__ __forceinline__ channel_block block_at(const state_space_launch& all,
                                                  std::int64_t block) {
  const std::int64_t first = block % all.cut.blocks_of_head * all.cut.channels();
  const std::int64_t left = all.call.columns - first;
  return {block / all.cut.blocks_of_head, first,
          static_cast<int>(min(left, std::int64_t{all.cut.channels()}))};
}

/// The place of a thread in a block.
struct thread_place {
  int slice, channel_warp;
  int column;       ///< of the block
  int state;        ///< the first of the tile
  int sum_column;   ///< among sums of all slices
  int group_state;  ///< among sums of all channel warps

  static __device__ __forceinline__ thread_place here(const state_space_cut& cut) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    thread_place mine;
    mine.slice = warp & ((1 << cut.log_slices) - 1);
    mine.channel_warp = warp >> cut.log_slices;
    mine.column = mine.channel_warp * 8 + lane / 4;
    mine.state = mine.slice * warp_states + lane % 4 * thread_states;
    mine.sum_column = mine.slice * cut.channels() + mine.column;
    mine.group_state = mine.channel_warp * cut.states() + mine.state;
    return mine;
  }
};

/// A thread's states of a tile. Those behind the last state or channel are nobody's and stay 0.
struct thread_states_of {
  std::int64_t channel = 0;  ///< of all heads
  std::int64_t first = 0;    ///< state
  std::int64_t head = 0, column = 0;
  int count = 0;

  __device__ __forceinline__ thread_states_of(std::int64_t number, std::int64_t state,
                                              std::int64_t of_head, std::int64_t of_column,
                                              int states)
      : channel(number), first(state), head(of_head), column(of_column), count(states) {}
  __device__ __forceinline__ thread_states_of(const state_space_launch& all,
                                              const channel_block& block, const thread_place& mine,
                                              std::int64_t tile)
      : channel(block.head * all.call.columns + block.first + mine.column),
        first(tile * all.cut.states() + mine.state),
        head(block.head),
        column(block.first + mine.column) {
    const std::int64_t left = all.call.states - first;
    if (mine.column < block.columns && left > 0) {
      count = static_cast<int>(min(left, std::int64_t{thread_states}));
    }
  }
  /// From a tensor shaped like initial_state or, without an entry, like A; absent: 0.
  __device__ __forceinline__ void load(float (&to)[thread_states], const scan_tensor& from,
                                       std::int64_t entry) const {
    const std::int64_t at = place_in(from, entry);
    const auto* const f32 = static_cast<const float*>(from.data) + at;
    const bool is_there = from.data != nullptr && entry != no_states;
    if (is_there && is_wide(from, f32)) {
      const float4 x = *reinterpret_cast<const float4*>(f32);
      to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
      return;
    }
#pragma unroll
    for (int r = 0; r < thread_states; ++r) {
      to[r] = is_there && r < count
                  ? prim::cuda::number_at(from.data, from.type, at + r * from.state)
                  : 0.0f;
    }
  }
  __device__ __forceinline__ void store(const scan_tensor& to, std::int64_t entry,
                                        const float (&from)[thread_states]) const {
    if (to.data == nullptr || entry == no_states) return;
    auto* const f32 = static_cast<float*>(to.data) + place_in(to, entry);
    if (is_wide(to, f32)) {
      *reinterpret_cast<float4*>(f32) = make_float4(from[0], from[1], from[2], from[3]);
      return;
    }
#pragma unroll
    for (int r = 0; r < thread_states; ++r) {
      if (r < count) f32[r * to.state] = from[r];
    }
  }
  /// In the workspace.
  __device__ __forceinline__ float4* in(float* memory, const state_space_cut& cut,
                                        std::int64_t slot) const {
    return reinterpret_cast<float4*>(
        memory + (slot * cut.channels_of_call + channel) * cut.state_stride + first);
  }
  __device__ __forceinline__ void load(float (&to)[thread_states], float* memory,
                                       const state_space_cut& cut, std::int64_t slot) const {
    const float4 x = count > 0 ? *in(memory, cut, slot) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
#pragma unroll
    for (int r = 0; r < thread_states; ++r) {
      if (r >= count) to[r] = 0.0f;
    }
  }
  __device__ __forceinline__ void store(float* memory, const state_space_cut& cut,
                                        std::int64_t slot,
                                        const float (&from)[thread_states]) const {
    if (count > 0) *in(memory, cut, slot) = make_float4(from[0], from[1], from[2], from[3]);
  }

 private:
  __device__ __forceinline__ std::int64_t place_in(const scan_tensor& tensor,
                                                   std::int64_t entry) const {
    return entry * tensor.entry + head * tensor.head + column * tensor.column +
           first * tensor.state;
  }
  /// All four of f32, side by side at a multiple of 16 bytes.
  __device__ __forceinline__ bool is_wide(const scan_tensor& tensor, const float* at) const {
    return count == thread_states && tensor.state == 1 && tensor.type == dtype::f32 &&
           (reinterpret_cast<std::uintptr_t>(at) & 15) == 0;
  }
};

}  // namespace tessera::kernels::selective_scan::sm80
