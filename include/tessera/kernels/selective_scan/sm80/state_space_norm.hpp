// The norm of state_space_v2 and its gradient: rms over groups of a token's columns, which belong
// to many blocks of channels. Those leave their columns in the workspace. With u what is normalised
// (y silu(z), or y before the gate), r = 1 / rms(u) of its group and g the gradient of u r,
//
//   d_u = r g - u r^3 / size * sum over the group of u g
#pragma once

#include <cstdint>

#include <tessera/kernels/selective_scan/sm80/state_space_block.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space_rows.hpp>
#include <tessera/prim/cuda/numbers.hpp>

namespace tessera::kernels::selective_scan::sm80 {

inline constexpr std::int64_t norm_segment = 32;  ///< rows that a block goes back through

/// Sums of two values over a block of any number of whole warps, for all its threads.
__device__ __forceinline__ float2 sums_of_block(float a, float b) {
  __shared__ float2 of_warps[32];
  a = prim::cuda::sum_of_warp(a);
  b = prim::cuda::sum_of_warp(b);
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = make_float2(a, b);
  __syncthreads();
  float2 sum = make_float2(0.0f, 0.0f);
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) {
    sum.x += of_warps[warp].x;
    sum.y += of_warps[warp].y;
  }
  return sum;
}

/// A group of columns of a row of the workspace.
struct norm_group {
  const state_space_launch& all;
  std::int64_t row, first;
  std::int64_t entry = row / all.call.sequences.tokens, token = row % all.call.sequences.tokens;

  __device__ __forceinline__ bool is_used() const {
    return sm80::is_used(all.call.sequences, token);
  }
  __device__ __forceinline__ float& column(std::int64_t at) const {
    return all.memory.columns[row * all.cut.channels_of_call + first + at];
  }
  /// Of a tensor shaped like x.
  __device__ __forceinline__ std::int64_t place(const scan_tensor& tensor, std::int64_t at) const {
    const int column = static_cast<int>(first + at);
    const int head = all.cut.columns_of_head.quotient(column);
    return entry * tensor.entry + token * tensor.token + head * tensor.head +
           (column - head * static_cast<int>(all.call.columns));
  }
  __device__ __forceinline__ float element(const scan_tensor& tensor, std::int64_t at) const {
    return prim::cuda::number_at(tensor.data, tensor.type, place(tensor, at));
  }
  __device__ __forceinline__ silu_value gate(std::int64_t at) const {
    return all.call.z.data != nullptr ? silu(element(all.call.z, at)) : silu_value{1.0f, 0.0f};
  }
  __device__ __forceinline__ float weight(std::int64_t at) const {
    const scan_tensor& weights = all.call.norm_weight;
    return weights.data == nullptr
               ? 1.0f
               : prim::cuda::number_at(weights.data, weights.type, (first + at) * weights.column);
  }
};

/// Columns to outputs; a block has a group of a row.
template <bool SharesSteps>
__global__ void __launch_bounds__(block_threads)
    normalise_columns(__grid_constant__ const state_space_launch all) {
  const state_space_kernel_args& args = all.call;
  const std::int64_t size = args.norm_group_size, groups = all.cut.channels_of_call / size;
  const norm_group own{all, blockIdx.x / groups, blockIdx.x % groups * size};
  if (!own.is_used()) return;
  // With the gate in front of the norm its columns go back to the workspace: one gate a column.
  const bool before_gate = args.norm_before_gate, gated = args.z.data != nullptr;
  float squares = 0.0f;
  for (int at = static_cast<int>(threadIdx.x); at < size; at += static_cast<int>(blockDim.x)) {
    float u = own.column(at);
    if (gated && !before_gate) {
      u *= own.gate(at).value;
      own.column(at) = u;
    }
    squares = fmaf(u, u, squares);
  }
  const float mean = sums_of_block(squares, 0.0f).x / static_cast<float>(size);
  const float r = 1.0f / sqrtf(mean + args.norm_eps);
  for (int at = static_cast<int>(threadIdx.x); at < size; at += static_cast<int>(blockDim.x)) {
    float out = own.column(at) * (own.weight(at) * r);
    if (gated && before_gate) out *= own.gate(at).value;
    prim::cuda::put_number(args.out.data, args.out.type, own.place(args.out, at), out);
  }
}

/// Columns to their gradients, in place; a block has a group of the rows of a segment.
template <bool SharesSteps>
__global__ void __launch_bounds__(block_threads)
    normalise_columns_back(__grid_constant__ const state_space_launch all, std::int64_t rows) {
  const state_space_kernel_args& args = all.call;
  const std::int64_t size = args.norm_group_size, groups = all.cut.channels_of_call / size;
  const std::int64_t segment = blockIdx.x / groups, first = blockIdx.x % groups * size;
  float* const weights = all.memory.weights + segment * all.cut.channels_of_call + first;
  for (std::int64_t at = threadIdx.x; at < size; at += blockDim.x) weights[at] = 0.0f;
  const bool before_gate = args.norm_before_gate;
  const std::int64_t end = min(rows, (segment + 1) * norm_segment);
  for (std::int64_t row = segment * norm_segment; row < end; ++row) {
    const norm_group own{all, row, first};
    if (!own.is_used()) continue;
    float squares = 0.0f, products = 0.0f;
    for (std::int64_t at = threadIdx.x; at < size; at += blockDim.x) {
      const float y = own.column(at), gate = own.gate(at).value;
      const float d_out = own.element(args.d_out, at);
      const float u = before_gate ? y : y * gate, d = before_gate ? d_out * gate : d_out;
      squares = fmaf(u, u, squares);
      products = fmaf(u, d * own.weight(at), products);
    }
    const float2 sums = sums_of_block(squares, products);
    const float r = 1.0f / sqrtf(sums.x / static_cast<float>(size) + args.norm_eps);
    const float shared = -r * (r * r) / static_cast<float>(size) * sums.y;
    for (std::int64_t at = threadIdx.x; at < size; at += blockDim.x) {
      const float y = own.column(at), d_out = own.element(args.d_out, at), w = own.weight(at);
      const silu_value gate = own.gate(at);
      const float u = before_gate ? y : y * gate.value;
      const float d = before_gate ? d_out * gate.value : d_out;
      weights[at] = fmaf(d, u * r, weights[at]);
      const float d_u = fmaf(u, shared, r * (d * w));
      const float d_gate = before_gate ? d_out * (y * r * w) : d_u * y;
      if (args.d_z.data != nullptr) {
        prim::cuda::put_number(args.d_z.data, args.d_z.type, own.place(args.d_z, at),
                               d_gate * gate.slope);
      }
      own.column(at) = before_gate ? d_u : d_u * gate.value;
    }
  }
}

/// Segments to d_norm_weight.
template <bool SharesSteps>
__global__ void __launch_bounds__(block_threads)
    add_norm_weights(__grid_constant__ const state_space_launch all, std::int64_t segments) {
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
  if (channel >= all.cut.channels_of_call) return;
  double sum = 0;
  for (std::int64_t segment = 0; segment < segments; ++segment) {
    sum += static_cast<double>(all.memory.weights[segment * all.cut.channels_of_call + channel]);
  }
  const scan_tensor& to = all.call.d_norm_weight;
  prim::cuda::put_number(to.data, to.type, channel * to.column, static_cast<float>(sum));
}

}  // namespace tessera::kernels::selective_scan::sm80
