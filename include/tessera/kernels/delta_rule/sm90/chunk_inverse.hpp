// The blocks under the diagonal of the inverse of I + A (sm80/chunk_inverse.hpp) by four warps: two
// pairs of blocks of 16, then the pair of blocks of 32 that they make,
//
//   M_10 = -M_11 A_10 M_00
//
// M_ij lies in block (j, i), where A has nothing.
#pragma once

#include <cstdint>

#include <tessera/kernels/delta_rule/sm80/chunk_inverse.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/split_products.hpp>

namespace tessera::kernels::delta_rule::sm90 {

/// As rounded as tf32 has numbers: M gets an error M dA M, which may be several times what it is
/// rounded by where keys are nearly parallel; most of it cancels in answers (README.md).
template <int Tiles>
__device__ __forceinline__ void multiply_rounded(prim::cuda::accumulator (&sums)[Tiles],
                                                 const float* a, const float* b, int lane) {
  sm80::multiply_blocks<Tiles, true>(sums, a, b, lane);
}

/// `sm80::invert_diagonal` with 8 numbers of a column a lane: the blocks of 8 on the diagonal are
/// inverted by substitution, the one below them, as for pairs of blocks, by two rounded products.
template <class Put>
__device__ __forceinline__ void invert_diagonal(sm80::solved_rows& solved, int warp, const Put& put,
                                                int lane) {
  constexpr int row = sm80::inverse_row;
  float* const block = &solved[warp * 16][warp * 16];
  float* const below = block + 8 * row;
  float* const scratch = block + 8;  // where the inverse has zeros
  {
    const int column = lane % 8;
    float* const own = block + lane / 8 % 2 * 8 * (row + 1);
    __syncwarp();
    float x[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = i == column ? 1.0f : 0.0f;
#pragma unroll
    for (int j = 0; j < 7; ++j) {
#pragma unroll
      for (int i = j + 1; i < 8; ++i) x[i] = fmaf(-own[i * row + j], x[j], x[i]);
    }
    __syncwarp();
    if (lane < 16) {
#pragma unroll
      for (int i = 0; i < 8; ++i) own[i * row + column] = x[i];
    }
    __syncwarp();
  }
  const int g = lane / 4, t = lane % 4;
  const auto multiply = [&](const float* a, const float* b) {
    const std::uint32_t of_a[2] = {__float_as_uint(a[g * row + t]),
                                   __float_as_uint(a[g * row + t + 4])};
    const std::uint32_t of_b[2] = {__float_as_uint(b[t * row + g]),
                                   __float_as_uint(b[(t + 4) * row + g])};
    const auto left = prim::cuda::split_of(of_a);
    const auto right = prim::cuda::split_of(of_b);
    const std::uint32_t rows[4] = {left.high[0], 0, left.high[1], 0};
    prim::cuda::accumulator sums = {};
    prim::cuda::multiply_add_tf32<0>(sums, rows, right.high);
    return make_float2(sums.at[0], sums.at[1]);
  };
  const auto place = [&](float* rows) -> float2& {
    return *reinterpret_cast<float2*>(rows + g * row + 2 * t);
  };
  place(scratch) = multiply(below, block);
  __syncwarp();
  const float2 product = multiply(below + 8, scratch);
  __syncwarp();
  place(scratch) = make_float2(0.0f, 0.0f);
  place(below) = make_float2(-product.x, -product.y);
  __syncwarp();
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const float2 upper = place(block + n * 8), lower = place(below + n * 8);
    put(warp, 2 * warp + n, prim::cuda::accumulator{{upper.x, upper.y, lower.x, lower.y}}, 1.0f);
  }
}

/// Behind a barrier, all of A and the inverses of its diagonal being stored. `wait` is a barrier of
/// the four warps; `put` as for `invert_diagonal`.
template <class Put, class Wait>
__device__ __forceinline__ void invert_pairs(sm80::solved_rows& solved, int warp, const Put& put,
                                             const Wait& wait, int lane = sm80::lane_of_thread()) {
  const auto block_at = [&](int i, int j) { return &solved[i * 16][j * 16]; };
  {
    // A warp has 8 columns of a pair.
    const int i = warp / 2 * 2, half = warp % 2;
    prim::cuda::accumulator sums[1] = {}, products[1] = {};
    multiply_rounded(sums, block_at(i + 1, i), block_at(i, i) + half * 8, lane);
    float* const own = block_at(i, i + 1) + half * 8;
    sm80::put_block(own, sums, 1.0f, lane);
    __syncwarp();
    multiply_rounded(products, block_at(i + 1, i + 1), own, lane);
    put(i + 1, 2 * i + half, products[0], -1.0f);
    __syncwarp();
    sm80::put_block(own, products, -1.0f, lane);
  }
  wait();
  // A block each.
  const int j = warp / 2, row = 2 + warp % 2;
  prim::cuda::accumulator sums[2] = {}, products[2] = {};
  multiply_rounded(sums, block_at(row, j), block_at(j, j), lane);
  if (j == 0) multiply_rounded(sums, block_at(row, 1), block_at(0, 1), lane);
  sm80::put_block(block_at(j, row), sums, 1.0f, lane);
  wait();
  multiply_rounded(products, row == 2 ? block_at(2, 2) : block_at(2, 3), block_at(j, 2), lane);
  if (row == 3) multiply_rounded(products, block_at(3, 3), block_at(j, 3), lane);
#pragma unroll
  for (int n = 0; n < 2; ++n) put(row, 2 * j + n, products[n], -1.0f);
}

}  // namespace tessera::kernels::delta_rule::sm90
