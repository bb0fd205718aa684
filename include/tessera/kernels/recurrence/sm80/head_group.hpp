// Gradients of what several heads read: each head leaves its share, and a kernel adds them up, in
// the order of the heads.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/kernels/recurrence/common/sequence.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::recurrence::sm80 {

/// Shares [tokens of all entries][heads][columns] of a tensor of `heads / group` heads.
struct head_shares {
  const float* shares = nullptr;
  std::int64_t tokens = 0;  ///< of an entry
  std::int64_t entries = 0;
  std::int64_t heads = 0, group = 0, columns = 0;

  std::int64_t elements() const { return entries * tokens * (heads / group) * columns; }
};

/// A gradient of what groups of heads read; null shares: each head has written its own.
template <class Rows>
struct head_gradient {
  const float* shares = nullptr;
  std::int64_t columns = 0;
  Rows to{};
};

/// Threads go through the elements of `to`, whose last axis is contiguous.
template <class Rows>
__global__ void __launch_bounds__(256)
    add_head_shares(head_shares from, Rows to, std::int64_t count) {
  const std::int64_t heads = from.heads / from.group;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       at < count; at += step) {
    const std::int64_t column = at % from.columns, row = at / from.columns;
    const std::int64_t head = row % heads, token = row / heads;
    const float* const first =
        from.shares + (token * from.heads + head * from.group) * from.columns + column;
    float sum = 0.0f;
    for (std::int64_t member = 0; member < from.group; ++member) {
      sum += first[member * from.columns];
    }
    prim::cuda::put_number(
        to.data, to.type, row_of(to, token / from.tokens, token % from.tokens, head) + column, sum);
  }
}

template <class Rows>
cudaError_t launch_head_shares(const head_shares& from, const Rows& to, cudaStream_t stream) {
  constexpr int threads = 256;
  const std::int64_t blocks = (from.elements() + threads - 1) / threads;
  if (from.shares == nullptr || blocks <= 0 || to.data == nullptr) return cudaSuccess;
  return prim::cuda::launch_kernel(
      &add_head_shares<Rows>,
      dim3(static_cast<unsigned>(std::min<std::int64_t>(blocks, std::int64_t{1} << 16))), threads,
      0, stream, false, from, to, from.elements());
}

}  // namespace tessera::kernels::recurrence::sm80
