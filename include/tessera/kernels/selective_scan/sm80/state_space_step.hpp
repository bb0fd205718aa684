// One token of each sequence, as generation has them: states are read and written once, 16 bytes at
// a time, those of eight channels under way in each thread.
#pragma once

#include <cstdint>

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space_block.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::selective_scan::sm80 {

inline constexpr int step_batch = 8;

/// True if every four states of the call lie side by side, at a multiple of 16 bytes.
inline bool step_takes(const state_space_kernel_args& args) {
  const auto is_wide = [](const scan_tensor& states) {
    return states.data == nullptr ||
           (reinterpret_cast<std::uintptr_t>(states.data) % 16 == 0 && states.state == 1 &&
            states.column % 4 == 0 && states.head % 4 == 0 && states.entry % 4 == 0);
  };
  return args.sequences.cu_seqlens == nullptr && args.sequences.tokens == 1 &&
         args.states % 4 == 0 && args.states > 0 && args.states <= most_states &&
         is_wide(args.initial_state) && is_wide(args.final_state);
}
/// Channels of a head that a block has.
TESSERA_HD inline int step_channels(const state_space_cut& cut) {
  return block_warps * step_batch * (8 >> cut.log_slices);
}

/// The channels of a thread, and four of their states.
struct step_place {
  std::int64_t sequence, head, first;  ///< the first channel of the warp
  int lanes, lane_of_channel, state;

  __device__ __forceinline__ step_place(const state_space_launch& all, std::int64_t parts) {
    const std::int64_t block = blockIdx.x / parts;
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    lanes = 4 << all.cut.log_slices;
    sequence = block / all.call.heads;
    head = block % all.call.heads;
    first = blockIdx.x % parts * step_channels(all.cut) + warp * step_batch * (32 / lanes) +
            lane / lanes;
    lane_of_channel = lane % lanes;
    state = lane_of_channel * thread_states;
  }
  /// Column k of the thread.
  __device__ __forceinline__ std::int64_t column(int k) const { return first + k * (32 / lanes); }
  __device__ __forceinline__ std::int64_t place(const scan_tensor& states, int k) const {
    return sequence * states.entry + head * states.head + column(k) * states.column + state;
  }
};

/// An element of each of the thread's columns, in a tensor shaped like x; absent: 0.
__device__ __forceinline__ void load_columns(float (&to)[step_batch], const scan_tensor& from,
                                             const step_place& mine, std::int64_t columns) {
  const std::int64_t row = row_of(from, mine.sequence, 0, mine.head);
  if (from.data == nullptr) {
#pragma unroll
    for (float& x : to) x = 0.0f;
    return;
  }
  with_elements(from.data, from.type, [&](const auto* elements) {
#pragma unroll
    for (int k = 0; k < step_batch; ++k) {
      to[k] =
          mine.column(k) < columns ? prim::cuda::float_of(elements[row + mine.column(k)]) : 0.0f;
    }
  });
}
/// The same of a parameter: of channels, or one of the head.
template <bool SharesSteps>
__device__ __forceinline__ void load_parameters(float (&to)[step_batch], const scan_tensor& from,
                                                const step_place& mine, std::int64_t columns) {
#pragma unroll
  for (int k = 0; k < step_batch; ++k) {
    const std::int64_t at =
        mine.head * from.head + (SharesSteps ? 0 : mine.column(k) * from.column);
    to[k] = from.data != nullptr && mine.column(k) < columns ? number_at(from.data, from.type, at)
                                                             : 0.0f;
  }
}

template <bool SharesSteps>
__global__ void __launch_bounds__(block_threads, 2)
    step_states(__grid_constant__ const state_space_launch all, std::int64_t parts) {
  const state_space_kernel_args& args = all.call;
  const step_place mine(all, parts);
  const bool has_states = mine.state < args.states;
  float4 h[step_batch];
#pragma unroll
  for (int k = 0; k < step_batch; ++k) {
    h[k] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (args.initial_state.data == nullptr || !has_states || mine.column(k) >= args.columns) {
      continue;
    }
    h[k] = __ldcs(reinterpret_cast<const float4*>(
        static_cast<const float*>(args.initial_state.data) + mine.place(args.initial_state, k)));
  }
  float b[thread_states] = {}, c[thread_states] = {};
  const std::int64_t group = mine.head / args.heads_per_group;
#pragma unroll
  for (int r = 0; r < thread_states; ++r) {
    if (!has_states) break;
    b[r] = number_at(args.B.data, args.B.type,
                     row_of(args.B, mine.sequence, 0, group) + mine.state + r);
    c[r] = number_at(args.C.data, args.C.type,
                     row_of(args.C, mine.sequence, 0, group) + mine.state + r);
  }
  float x[step_batch], dt[step_batch], z[step_batch], bias[step_batch], skip[step_batch];
  load_columns(x, args.x, mine, args.columns);
  load_columns(z, args.z, mine, args.columns);
  load_parameters<SharesSteps>(skip, args.D, mine, args.columns);
  float of_head = 0.0f;
  if constexpr (SharesSteps) {
    const float step = step_of(args, number_at(args.dt.data, args.dt.type,
                                               row_of(args.dt, mine.sequence, 0, mine.head)) +
                                         (args.dt_bias.data == nullptr
                                              ? 0.0f
                                              : number_at(args.dt_bias.data, args.dt_bias.type,
                                                          mine.head * args.dt_bias.head)))
                           .step;
    of_head = expf(number_at(args.A.data, args.A.type, mine.head * args.A.head) * step);
#pragma unroll
    for (float& each : dt) each = step;
  } else {
    load_columns(dt, args.dt, mine, args.columns);
    load_parameters<SharesSteps>(bias, args.dt_bias, mine, args.columns);
#pragma unroll
    for (int k = 0; k < step_batch; ++k) dt[k] = step_of(args, dt[k] + bias[k]).step;
  }
#pragma unroll
  for (int k = 0; k < step_batch; ++k) {
    const bool mine_to_do = has_states && mine.column(k) < args.columns;
    float states[thread_states] = {h[k].x, h[k].y, h[k].z, h[k].w};
    float y = 0.0f;
    if (mine_to_do) {
      const float moved = dt[k] * x[k];
      const std::int64_t rates =
          mine.head * args.A.head + mine.column(k) * args.A.column + mine.state * args.A.state;
#pragma unroll
      for (int r = 0; r < thread_states; ++r) {
        const float decay =
            SharesSteps
                ? of_head
                : expf(number_at(args.A.data, args.A.type, rates + r * args.A.state) * dt[k]);
        states[r] = fmaf(moved, b[r], decay * states[r]);
        y = fmaf(states[r], c[r], y);
      }
      if (args.final_state.data != nullptr) {
        __stcs(reinterpret_cast<float4*>(static_cast<float*>(args.final_state.data) +
                                         mine.place(args.final_state, k)),
               make_float4(states[0], states[1], states[2], states[3]));
      }
    }
    for (int step = mine.lanes / 2; step > 0; step /= 2) {
      y += __shfl_xor_sync(prim::cuda::all_lanes, y, step);
    }
    if (mine.lane_of_channel != 0 || mine.column(k) >= args.columns) continue;
    y = fmaf(skip[k], x[k], y);
    if (args.norm) {
      all.memory.columns[(mine.sequence * args.heads + mine.head) * args.columns + mine.column(k)] =
          y;
      continue;
    }
    if (args.z.data != nullptr) y *= silu(z[k]).value;
    put_number(args.out.data, args.out.type,
               row_of(args.out, mine.sequence, 0, mine.head) + mine.column(k), y);
  }
}

}  // namespace tessera::kernels::selective_scan::sm80
