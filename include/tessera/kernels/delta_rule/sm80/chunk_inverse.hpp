// The inverse of I + A, A strictly lower triangular of 64 rows, in f32 by blocks of 16: those on
// the diagonal by forward substitution, the others by products,
//
//   M_ij = -M_ii (sum over k from j to i - 1 of A_ik M_kj)
#pragma once

#include <cstdint>

#include <tessera/kernels/delta_rule/sm80/chunk_memory.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/split_products.hpp>

namespace tessera::kernels::delta_rule::sm80 {

/// Waits for the four warps that solve.
__device__ __forceinline__ void wait_for_solvers() {
  asm volatile("bar.sync 1, 128;" ::: "memory");
}

/// sums += a b of blocks of 16 x 16 numbers in rows of `inverse_row`.
__device__ __forceinline__ void multiply_blocks(prim::cuda::accumulator (&sums)[2], const float* a,
                                                const float* b) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int k = 0; k < 16; k += 8) {
    const std::uint32_t of_a[4] = {__float_as_uint(a[g * inverse_row + k + t]),
                                   __float_as_uint(a[(g + 8) * inverse_row + k + t]),
                                   __float_as_uint(a[g * inverse_row + k + t + 4]),
                                   __float_as_uint(a[(g + 8) * inverse_row + k + t + 4])};
    const auto left = prim::cuda::split_of(of_a);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const std::uint32_t of_b[2] = {__float_as_uint(b[(k + t) * inverse_row + n * 8 + g]),
                                     __float_as_uint(b[(k + t + 4) * inverse_row + n * 8 + g])};
      const auto right = prim::cuda::split_of(of_b);
      prim::cuda::multiply_add_tf32<0>(sums[n], left.low, right.high);
      prim::cuda::multiply_add_tf32<0>(sums[n], left.high, right.low);
      prim::cuda::multiply_add_tf32<0>(sums[n], left.high, right.high);
    }
  }
}
__device__ __forceinline__ void put_block(float* to, const prim::cuda::accumulator (&sums)[2],
                                          float sign) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[(g + i / 2 * 8) * inverse_row + n * 8 + 2 * t + i % 2] = sign * sums[n].at[i];
    }
  }
}

/// A block on the diagonal: a lane has a column of the inverse.
__device__ __forceinline__ void invert_block(float* block) {
  const int column = static_cast<int>(threadIdx.x) % 16;
  float x[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    float sum = i == column ? 1.0f : 0.0f;
#pragma unroll
    for (int j = 0; j < i; ++j) sum = fmaf(-block[i * inverse_row + j], x[j], sum);
    x[i] = sum;
  }
  __syncwarp();
  if (threadIdx.x % 32 < 16) {
#pragma unroll
    for (int i = 0; i < 16; ++i) block[i * inverse_row + column] = x[i];
  }
  __syncwarp();
}

/// In place, by the first four warps of a block; `rounded` becomes the inverse as 16-bit elements.
template <class Element, class Shape>
__device__ __forceinline__ void invert(delta_chunk_memory<Shape>& shared, int warp) {
  using words = prim::cuda::half_words<Element>;
  const auto block_at = [&](int i, int j) { return &shared.solved[i * 16][j * 16]; };
  invert_block(block_at(warp, warp));
  wait_for_solvers();
  for (int row = 1; row < 4; ++row) {
    prim::cuda::accumulator sums[2] = {};
    const bool has_block = warp < row;
    if (has_block) {
      for (int k = warp; k < row; ++k) multiply_blocks(sums, block_at(row, k), block_at(k, warp));
    }
    wait_for_solvers();
    if (has_block) {
      float* const own = block_at(row, warp);
      put_block(own, sums, 1.0f);
      __syncwarp();
      prim::cuda::accumulator products[2] = {};
      multiply_blocks(products, block_at(row, row), own);
      __syncwarp();
      put_block(own, products, -1.0f);
    }
    wait_for_solvers();
  }
  const std::uint32_t rounded = prim::cuda::shared_address(shared.inverse);
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int row = warp * 16 + i;
    const bool used = lane * 2 < warp * 16 + 16;
    const float2 pair = used ? *reinterpret_cast<const float2*>(&shared.solved[row][lane * 2])
                             : make_float2(0.0f, 0.0f);
    prim::cuda::store_shared_4(
        rounded +
            Shape::weight_rows::offset(static_cast<std::uint32_t>(row),
                                       static_cast<std::uint32_t>(lane / 4)) +
            static_cast<std::uint32_t>(lane % 4 * 4),
        words::pack(pair.x, pair.y));
  }
}

}  // namespace tessera::kernels::delta_rule::sm80
