// Gradients of state spaces that are sums of what many blocks have: of parameters over chunks, of B
// and C over the blocks of a group. Each has one order.
#pragma once

#include <cstdint>

#include <tessera/kernels/selective_scan/sm80/chunks.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space_block.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space_rows.hpp>

namespace tessera::kernels::selective_scan::sm80 {

/// Calls add(slot) for every chunk of a launch.
template <class Add>
__device__ __forceinline__ void for_each_chunk(const scan_sequences& all, const Add& add) {
  for (std::int64_t n = 0; n < all.count; ++n) {
    const scan_sequence own = sequence_at(all, n);
    const std::int64_t chunks = chunks_of(own.length);
    for (std::int64_t at = 0; at < chunks; ++at) add(own.first_slot + at);
  }
}

/// A thread has a row of a group, and one of its states.
template <bool SharesSteps>
__global__ void __launch_bounds__(block_threads)
    add_group_shares(__grid_constant__ const state_space_launch all, std::int64_t owners,
                     std::int64_t elements) {
  const state_space_kernel_args& args = all.call;
  const std::int64_t states = args.states, of_group = owners / args.groups;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * block_threads;
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
       at < elements; at += step) {
    const std::int64_t n = at % states, group = at / states % args.groups;
    const std::int64_t row = at / states / args.groups, tokens = args.sequences.tokens;
    const float* const shares =
        all.memory.groups + ((row * owners + group * of_group) * 2) * states + n;
    const bool used = is_used(args.sequences, row % tokens);
    double b = 0, c = 0;
    for (std::int64_t member = 0; used && member < of_group; ++member) {
      b += static_cast<double>(shares[2 * member * states]);
      c += static_cast<double>(shares[(2 * member + 1) * states]);
    }
    const auto put = [&](const scan_tensor& to, double sum) {
      prim::cuda::put_number(to.data, to.type, row_of(to, row / tokens, row % tokens, group) + n,
                             static_cast<float>(sum));
    };
    put(args.d_B, b);
    put(args.d_C, c);
  }
}

/// D, dt_bias and, where heads share their steps, A; a d_D of their columns is `add_skip_shares`'.
template <bool SharesSteps>
__global__ void __launch_bounds__(block_threads)
    add_parameter_shares(__grid_constant__ const state_space_launch all) {
  const state_space_kernel_args& args = all.call;
  const std::int64_t width = SharesSteps ? args.heads : all.cut.channels_of_call;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
  if (at >= width) return;
  double sums[3] = {};
  for_each_chunk(args.sequences, [&](std::int64_t slot) {
#pragma unroll
    for (int which = 0; which < (SharesSteps ? 3 : 2); ++which) {
      sums[which] += static_cast<double>(all.memory.parameters[(slot * 3 + which) * width + at]);
    }
  });
  const std::int64_t head = SharesSteps ? at : at / args.columns;
  const std::int64_t column = SharesSteps ? 0 : at % args.columns;
  const auto put = [&](const scan_tensor& to, double sum) {
    if (to.data == nullptr) return;
    prim::cuda::put_number(to.data, to.type, head * to.head + column * to.column,
                           static_cast<float>(sum));
  };
  if (!SharesSteps || args.d_D.column == 0) put(args.d_D, sums[0]);
  put(args.d_dt_bias, sums[1]);
  if constexpr (SharesSteps) put(args.d_A, sums[2]);
}

/// A d_D of columns of state_space_v2.
template <bool SharesSteps>
__global__ void __launch_bounds__(block_threads)
    add_skip_shares(__grid_constant__ const state_space_launch all, std::int64_t channels) {
  const state_space_kernel_args& args = all.call;
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
  if (channel >= channels) return;
  double sum = 0;
  for_each_chunk(args.sequences, [&](std::int64_t slot) {
    sum += static_cast<double>(all.memory.skips[slot * channels + channel]);
  });
  const scan_tensor& to = args.d_D;
  prim::cuda::put_number(to.data, to.type,
                         channel / args.columns * to.head + channel % args.columns * to.column,
                         static_cast<float>(sum));
}

/// A of state_space_v1, of each channel and state.
template <bool SharesSteps>
__global__ void __launch_bounds__(block_threads)
    add_rate_shares(__grid_constant__ const state_space_launch all, std::int64_t elements) {
  const state_space_kernel_args& args = all.call;
  const state_space_cut& cut = all.cut;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
  if (at >= elements) return;
  const std::int64_t n = at % args.states, channel = at / args.states;
  double sum = 0;
  for_each_chunk(args.sequences, [&](std::int64_t slot) {
    sum += static_cast<double>(
        all.memory.gradients[(slot * cut.channels_of_call + channel) * cut.state_stride + n]);
  });
  const scan_tensor& to = args.d_A;
  prim::cuda::put_number(
      to.data, to.type,
      channel / args.columns * to.head + channel % args.columns * to.column + n * to.state,
      static_cast<float>(sum));
}

}  // namespace tessera::kernels::selective_scan::sm80
