// The blocks under the diagonal of the inverse of I + A (sm80/chunk_inverse.hpp) by four warps: two
// pairs of blocks of 16, then the pair of blocks of 32 that they make,
//
//   M_10 = -M_11 A_10 M_00
//
// M_ij lies in block (j, i), where A has nothing.
#pragma once

#include <tessera/kernels/delta_rule/sm80/chunk_inverse.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>

namespace tessera::kernels::delta_rule::sm90 {

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
    sm80::multiply_blocks(sums, block_at(i + 1, i), block_at(i, i) + half * 8, lane);
    float* const own = block_at(i, i + 1) + half * 8;
    sm80::put_block(own, sums, 1.0f, lane);
    __syncwarp();
    sm80::multiply_blocks(products, block_at(i + 1, i + 1), own, lane);
    put(i + 1, 2 * i + half, products[0], -1.0f);
    __syncwarp();
    sm80::put_block(own, products, -1.0f, lane);
  }
  wait();
  // A block each.
  const int j = warp / 2, row = 2 + warp % 2;
  prim::cuda::accumulator sums[2] = {}, products[2] = {};
  sm80::multiply_blocks(sums, block_at(row, j), block_at(j, j), lane);
  if (j == 0) sm80::multiply_blocks(sums, block_at(row, 1), block_at(0, 1), lane);
  sm80::put_block(block_at(j, row), sums, 1.0f, lane);
  wait();
  sm80::multiply_blocks(products, row == 2 ? block_at(2, 2) : block_at(2, 3), block_at(j, 2), lane);
  if (row == 3) sm80::multiply_blocks(products, block_at(3, 3), block_at(j, 3), lane);
#pragma unroll
  for (int n = 0; n < 2; ++n) put(row, 2 * j + n, products[n], -1.0f);
}

}  // namespace tessera::kernels::delta_rule::sm90
