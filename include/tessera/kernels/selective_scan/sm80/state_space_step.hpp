// One token of each sequence, as generation has them, or as many tokens as packed sequences: states
// are read and written once, 16 bytes at a time, those of a few channels under way in each thread.
#pragma once

#include <cstdint>

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space_block.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space_rows.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::selective_scan::sm80 {

/// Channels of a thread. Those of state_space_v1 have rates of their own in registers.
template <bool SharesSteps>
inline constexpr int step_batch = SharesSteps ? 8 : 4;

/// True if a sequence has one token (packed: on average, at most) and every four states of the call
/// lie side by side, at a multiple of 16 bytes.
inline bool step_takes(const state_space_kernel_args& args) {
  const auto is_wide = [](const scan_tensor& states) {
    return states.data == nullptr ||
           (reinterpret_cast<std::uintptr_t>(states.data) % 16 == 0 && states.state == 1 &&
            states.column % 4 == 0 && states.head % 4 == 0 && states.entry % 4 == 0);
  };
  const scan_sequences& all = args.sequences;
  const std::int64_t most_tokens = all.cu_seqlens == nullptr ? 1 : all.count;
  return all.tokens > 0 && all.tokens <= most_tokens && args.states % 4 == 0 && args.states > 0 &&
         args.states <= most_states && is_wide(args.initial_state) && is_wide(args.final_state);
}
/// Channels of a head that a block has.
template <bool SharesSteps>
TESSERA_HD int step_channels(const state_space_cut& cut) {
  return block_warps * step_batch<SharesSteps> * (8 >> cut.log_slices);
}

/// The channels of a thread, `apart` from each other, and four of their states.
template <int Batch>
struct step_place {
  std::int64_t sequence, head, first;
  int apart, count;  ///< channels of a warp at a time; those of the thread that there are
  int lane, lane_of_channel, state;

  template <bool SharesSteps>
  static __device__ __forceinline__ step_place here(const state_space_launch& all, unsigned parts) {
    // Quotients of 32 bits: those of 64 were a quarter of a block's instructions.
    const unsigned block = blockIdx.x / parts;
    const auto heads = static_cast<unsigned>(all.call.heads);
    step_place mine;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    mine.lane = static_cast<int>(threadIdx.x) % 32;
    mine.apart = 8 >> all.cut.log_slices;
    mine.sequence = block / heads;
    mine.head = block % heads;
    mine.first =
        static_cast<std::int64_t>(blockIdx.x % parts) * step_channels<SharesSteps>(all.cut) +
        (warp * Batch * mine.apart + mine.lane / (32 / mine.apart));
    mine.lane_of_channel = mine.lane % (32 / mine.apart);
    mine.state = mine.lane_of_channel * thread_states;
    const std::int64_t left = all.call.columns - mine.first;
    mine.count =
        left <= 0
            ? 0
            : static_cast<int>(min((left - 1) / mine.apart + 1, static_cast<std::int64_t>(Batch)));
    return mine;
  }
  /// The states of the thread's first channel.
  __device__ __forceinline__ float* states_in(const scan_tensor& tensor, std::int64_t entry) const {
    return static_cast<float*>(tensor.data) + entry * tensor.entry + head * tensor.head +
           first * tensor.column + state;
  }
  /// An element of each channel of a token, in a tensor shaped like x.
  __device__ __forceinline__ void load(float (&to)[Batch], const scan_tensor& from,
                                       std::int64_t entry, std::int64_t token) const {
    const std::int64_t row = row_of(from, entry, token, head) + first;
    prim::cuda::with_elements(from.data, from.type, [&](const auto* elements) {
#pragma unroll
      for (int k = 0; k < Batch; ++k) {
        to[k] = k < count ? prim::cuda::float_of(elements[row + k * apart]) : 0.0f;
      }
    });
  }
};

/// Four elements of a token's B or C.
__device__ __forceinline__ void load_four(float (&to)[thread_states], const scan_tensor& from,
                                          std::int64_t row) {
  prim::cuda::with_elements(from.data, from.type, [&](const auto* elements) {
#pragma unroll
    for (int r = 0; r < thread_states; ++r) to[r] = prim::cuda::float_of(elements[row + r]);
  });
}

/// The outputs of a token's channels, of which each lane below 4 has the sums of two.
template <bool SharesSteps, class Place>
__device__ __forceinline__ void finish_step(const state_space_launch& all, const Place& mine,
                                            std::int64_t entry, std::int64_t token,
                                            const float* y) {
  const state_space_kernel_args& args = all.call;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int k = (mine.lane % 2) * 4 + (mine.lane / 2 % 2) * 2 + i;
    if (k >= mine.count) continue;
    const std::int64_t column = mine.first + k * mine.apart;
    const auto element = [&](const scan_tensor& rows) {
      return row_of(rows, entry, token, mine.head) + column;
    };
    const float of_x = prim::cuda::number_at(args.x.data, args.x.type, element(args.x));
    float out = fmaf(parameter_at(args.D, mine.head, column), of_x, y[i]);
    if (args.norm) {
      const std::int64_t row = entry * args.sequences.tokens + token;
      all.memory.columns[(row * args.heads + mine.head) * args.columns + column] = out;
      continue;
    }
    if (args.z.data != nullptr) {
      out *= silu(prim::cuda::number_at(args.z.data, args.z.type, element(args.z))).value;
    }
    prim::cuda::put_number(args.out.data, args.out.type, element(args.out), out);
  }
}

/// `Packed`: any number of tokens, in more registers.
template <bool SharesSteps, bool Packed>
__global__ void __launch_bounds__(block_threads, Packed ? 2 : 3)
    step_states(__grid_constant__ const state_space_launch all, unsigned parts) {
  constexpr int batch = step_batch<SharesSteps>;
  using place = step_place<batch>;
  const state_space_kernel_args& args = all.call;
  const place mine = place::template here<SharesSteps>(all, parts);
  const scan_sequence tokens = sequence_at(args.sequences, mine.sequence);
  const bool has_states = mine.state < args.states;
  const int count = has_states ? mine.count : 0;
  const bool is_kept = !Packed || tokens.states_entry != no_states;
  float4 h[batch];
  const float* from = mine.states_in(args.initial_state, tokens.states_entry);
#pragma unroll
  for (int k = 0; k < batch; ++k) {
    h[k] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (args.initial_state.data != nullptr && is_kept && k < count) {
      h[k] = __ldcs(reinterpret_cast<const float4*>(from));
    }
    from += mine.apart * args.initial_state.column;
  }
  const std::int64_t group =
      static_cast<unsigned>(mine.head) / static_cast<unsigned>(args.heads_per_group);
  const bool is_fast = args.x.type != dtype::f32;
  const std::int64_t length = Packed ? tokens.length : 1;
#pragma unroll 1
  for (std::int64_t step = 0; step < length; ++step) {
    const std::int64_t token = tokens.begin + step;
    float b[thread_states] = {}, c[thread_states] = {}, x[batch];
    if (has_states) {
      load_four(b, args.B, row_of(args.B, tokens.entry, token, group) + mine.state);
      load_four(c, args.C, row_of(args.C, tokens.entry, token, group) + mine.state);
    }
    mine.load(x, args.x, tokens.entry, token);
    const std::int64_t dt_row = row_of(args.dt, tokens.entry, token, mine.head);
    float dt[batch], rates[SharesSteps ? 1 : batch][thread_states] = {}, of_head = 0.0f;
    if constexpr (SharesSteps) {
      const float raw = prim::cuda::number_at(args.dt.data, args.dt.type, dt_row) +
                        parameter_at(args.dt_bias, mine.head, 0);
      dt[0] = step_of(args, raw).step;
      of_head =
          expf(prim::cuda::number_at(args.A.data, args.A.type, mine.head * args.A.head) * dt[0]);
    } else {
      // Each of four lanes makes the step of one of the channels.
      static_assert(batch == 4);
      const int own_channel = mine.lane % batch;
      const std::int64_t own_column = mine.first + own_channel * mine.apart;
      float own_step = 0.0f;
      if (own_channel < mine.count) {
        const float raw = prim::cuda::number_at(args.dt.data, args.dt.type, dt_row + own_column);
        own_step = step_of(args, raw + parameter_at(args.dt_bias, mine.head, own_column)).step;
      }
#pragma unroll
      for (int k = 0; k < batch; ++k) {
        dt[k] = __shfl_sync(prim::cuda::all_lanes, own_step, mine.lane / batch * batch + k);
        if (k >= count) continue;
        const std::int64_t column = mine.first + k * mine.apart;
        const thread_states_of own{column, mine.state, mine.head, column, thread_states};
        own.load(rates[k], args.A, 0);
      }
    }
    float y[8] = {};
    [[maybe_unused]] float* to = mine.states_in(args.final_state, mine.sequence);
#pragma unroll
    for (int k = 0; k < batch; ++k) {
      const float size = dt[SharesSteps ? 0 : k], moved = size * x[k];
      float states[thread_states] = {h[k].x, h[k].y, h[k].z, h[k].w};
#pragma unroll
      for (int r = 0; r < thread_states; ++r) {
        float decay = of_head;
        if constexpr (!SharesSteps) {
          const float power = rates[k][r] * size;
          decay = is_fast ? prim::cuda::exp2_fast(power * 1.44269504088896f) : expf(power);
        }
        states[r] = fmaf(moved, b[r], decay * states[r]);
        if (k < count) y[k] = fmaf(states[r], c[r], y[k]);
      }
      h[k] = make_float4(states[0], states[1], states[2], states[3]);
      if constexpr (!Packed) {
        if (args.final_state.data != nullptr && k < count) {
          __stcs(reinterpret_cast<float4*>(to), h[k]);
        }
        to += mine.apart * args.final_state.column;
      }
    }
    // Each lane ends with the sums of two of the channels, if there are as many.
    fold_values<8, 1, 2>(y, mine.lane);
    for (int other = 4; other < 32 / mine.apart; other *= 2) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        y[i] += __shfl_xor_sync(prim::cuda::all_lanes, y[i], other);
      }
    }
    if (mine.lane_of_channel < 4) {
      finish_step<SharesSteps>(all, mine, tokens.entry, token, y);
    }
  }
  if (!Packed || args.final_state.data == nullptr || !is_kept) return;
  float* to = mine.states_in(args.final_state, tokens.states_entry);
#pragma unroll
  for (int k = 0; k < batch; ++k) {
    if (k < count) __stcs(reinterpret_cast<float4*>(to), h[k]);
    to += mine.apart * args.final_state.column;
  }
}

}  // namespace tessera::kernels::selective_scan::sm80
