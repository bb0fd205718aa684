// What is counted before tokens are touched: chunks before each sequence, and sums of weights.
#pragma once

#include <cstdint>

#include <tessera/kernels/mean_pooling/sm80/segments.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::mean_pooling::sm80 {

inline constexpr int counting_threads = 1024;

/// chunks_before[n] = chunks of the sequences before n. One block, eight sequences a thread.
template <class Kernel>
__global__ void __launch_bounds__(counting_threads) count_chunks(launch_args args) {
  constexpr int each = 8;
  constexpr int warps = counting_threads / prim::cuda::warp_size;
  __shared__ int of_warp[warps];
  const std::int32_t* const offset = args.call.cu_seqlens;
  const std::int64_t sequences = args.call.sequences;
  const auto clipped = [&](std::int64_t n) {
    const std::int64_t most = offset[n] < args.cut.tokens ? offset[n] : args.cut.tokens;
    return static_cast<std::uint32_t>(most > 0 ? most : 0);
  };
  const auto chunk =
      static_cast<std::uint32_t>(args.call.chunk < INT32_MAX ? args.call.chunk : INT32_MAX);
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  const int warp = static_cast<int>(threadIdx.x) / prim::cuda::warp_size;
  std::int64_t before = 0;
  for (std::int64_t tile = 0; tile < sequences; tile += counting_threads * each) {
    const std::int64_t first = tile + std::int64_t{threadIdx.x} * each;
    int chunks[each];
    int sum = 0;
#pragma unroll
    for (int i = 0; i < each; ++i) {
      chunks[i] = 0;
      if (first + i < sequences) {
        const std::uint32_t begin = clipped(first + i);
        const std::uint32_t end = clipped(first + i + 1);
        if (end > begin) chunks[i] = static_cast<int>((end - begin - 1) / chunk + 1);
      }
      sum += chunks[i];
    }
    const int inclusive = prim::cuda::inclusive_sum_of_warp(sum, lane);
    if (lane == prim::cuda::warp_size - 1) of_warp[warp] = inclusive;
    __syncthreads();
    const int sums = prim::cuda::inclusive_sum_of_warp(of_warp[lane], lane);
    const int warps_before = __shfl_sync(prim::cuda::all_lanes, sums, warp > 0 ? warp - 1 : 0);
    std::int64_t count = before + (warp > 0 ? warps_before : 0) + inclusive - sum;
    for (int i = 0; i < each && first + i < sequences; ++i) {
      args.chunks_before[first + i] = count;
      count += chunks[i];
    }
    before += __shfl_sync(prim::cuda::all_lanes, sums, warps - 1);
    __syncthreads();
  }
  if (threadIdx.x == 0) args.chunks_before[sequences] = before;
}

/// Weights of tokens, or sums of them.
struct weights_of_mask {
  mean_pooling_kernel_args call;
  __device__ double at(std::int64_t entry, std::int64_t token) const {
    const mask_weights weights(call, entry);
    return static_cast<double>(weights.value_of(weights.bits_of(token)));
  }
};
struct sums_of_slices {
  const double* sums;
  std::int64_t slices;
  __device__ double at(std::int64_t entry, std::int64_t slice) const {
    return sums[entry * slices + slice];
  }
};

/// sums[entry][slice] = the sum of `slice_values` values of an entry, a warp's work.
template <class Kernel, class Values>
__global__ void __launch_bounds__(pooling_threads_sm80)
    add_weights(Values values, std::int64_t entries, std::int64_t count, std::int64_t slices,
                std::int64_t slice_values, double* sums) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x / prim::cuda::warp_size;
  const auto lane = static_cast<int>(thread % prim::cuda::warp_size);
  for (std::int64_t item = thread / prim::cuda::warp_size; item < entries * slices;
       item += stride) {
    const std::int64_t entry = item / slices;
    const std::int64_t first = item % slices * slice_values;
    const std::int64_t end = first + slice_values < count ? first + slice_values : count;
    double sum = 0;
#pragma unroll 8
    for (std::int64_t at = first + lane; at < end; at += prim::cuda::warp_size) {
      sum += values.at(entry, at);
    }
    for (int other = prim::cuda::warp_size / 2; other > 0; other /= 2) {
      sum += __shfl_xor_sync(prim::cuda::all_lanes, sum, other);
    }
    if (lane == 0) sums[item] = sum;
  }
}

}  // namespace tessera::kernels::mean_pooling::sm80
