// The inverse of I + A, A strictly lower triangular of 64 rows, in f32 by blocks of 16: those on
// the diagonal by forward substitution, the others by products,
//
//   M_ij = -M_ii (sum over k from j to i - 1 of A_ik M_kj)
//
// A warp has a column of blocks, which needs no block of M but its own and those on the diagonal.
// M_ij lies where A has nothing, in block (j, i), so that A stays as it is and no warp waits.
#pragma once

#include <cstdint>

#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/split_products.hpp>

namespace tessera::kernels::delta_rule::sm80 {

/// Numbers of f32 between rows of A and of its inverse.
inline constexpr int inverse_row = 68;
using solved_rows = float[64][inverse_row];

__device__ __forceinline__ int lane_of_thread() {
  return static_cast<int>(threadIdx.x) % 32;
}

/// sums += a b of blocks of 16 x 16 numbers in rows of `inverse_row`, 8 `Tiles` columns of b; as
/// accurate as f32, or with numbers rounded to tf32.
template <int Tiles, bool Rounds = false>
__device__ __forceinline__ void multiply_blocks(prim::cuda::accumulator (&sums)[Tiles],
                                                const float* a, const float* b,
                                                int lane = lane_of_thread()) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int k = 0; k < 16; k += 8) {
    const std::uint32_t of_a[4] = {__float_as_uint(a[g * inverse_row + k + t]),
                                   __float_as_uint(a[(g + 8) * inverse_row + k + t]),
                                   __float_as_uint(a[g * inverse_row + k + t + 4]),
                                   __float_as_uint(a[(g + 8) * inverse_row + k + t + 4])};
    const auto left = prim::cuda::split_of(of_a);
#pragma unroll
    for (int n = 0; n < Tiles; ++n) {
      const std::uint32_t of_b[2] = {__float_as_uint(b[(k + t) * inverse_row + n * 8 + g]),
                                     __float_as_uint(b[(k + t + 4) * inverse_row + n * 8 + g])};
      const auto right = prim::cuda::split_of(of_b);
      if constexpr (!Rounds) {
        prim::cuda::multiply_add_tf32<0>(sums[n], left.low, right.high);
        prim::cuda::multiply_add_tf32<0>(sums[n], left.high, right.low);
      }
      prim::cuda::multiply_add_tf32<0>(sums[n], left.high, right.high);
    }
  }
}
template <int Tiles>
__device__ __forceinline__ void put_block(float* to, const prim::cuda::accumulator (&sums)[Tiles],
                                          float sign, int lane = lane_of_thread()) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int n = 0; n < Tiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[(g + i / 2 * 8) * inverse_row + n * 8 + 2 * t + i % 2] = sign * sums[n].at[i];
    }
  }
}

/// A block on the diagonal, in place, by the warp that has stored it: a lane has a column of the
/// inverse. `put(row, tile, sums, sign)` takes 16 rows and 8 columns of the inverse, times `sign`,
/// as well.
template <class Put>
__device__ __forceinline__ void invert_diagonal(solved_rows& solved, int warp, const Put& put,
                                                int lane = lane_of_thread()) {
  float* const block = &solved[warp * 16][warp * 16];
  const int column = lane % 16;
  __syncwarp();
  float x[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) x[i] = i == column ? 1.0f : 0.0f;
    // Sums that do not wait for each other.
#pragma unroll
  for (int j = 0; j < 15; ++j) {
#pragma unroll
    for (int i = j + 1; i < 16; ++i) x[i] = fmaf(-block[i * inverse_row + j], x[j], x[i]);
  }
  __syncwarp();
  if (lane < 16) {
#pragma unroll
    for (int i = 0; i < 16; ++i) block[i * inverse_row + column] = x[i];
  }
  __syncwarp();
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    prim::cuda::accumulator sums;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums.at[i] = block[(lane / 4 + i / 2 * 8) * inverse_row + n * 8 + 2 * (lane % 4) + i % 2];
    }
    put(warp, 2 * warp + n, sums, 1.0f);
  }
}

/// The blocks under the diagonal, by the first four warps of a block once all of A and of its
/// diagonal's inverses are stored.
template <class Put>
__device__ __forceinline__ void invert_below(solved_rows& solved, int warp, const Put& put) {
  const auto block_at = [&](int i, int j) { return &solved[i * 16][j * 16]; };
  for (int row = warp + 1; row < 4; ++row) {
    prim::cuda::accumulator sums[2] = {};
    for (int k = warp; k < row; ++k) multiply_blocks(sums, block_at(row, k), block_at(warp, k));
    float* const own = block_at(warp, row);
    put_block(own, sums, 1.0f);
    __syncwarp();
    prim::cuda::accumulator products[2] = {};
    multiply_blocks(products, block_at(row, row), own);
    put(row, 2 * warp, products[0], -1.0f);
    put(row, 2 * warp + 1, products[1], -1.0f);
    if (row == 3) break;
    __syncwarp();
    put_block(own, products, -1.0f);
    __syncwarp();
  }
}

}  // namespace tessera::kernels::delta_rule::sm80
