// Products of a warp between tiles in shared memory, and where it puts scores there.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention_backward/sm80/tiles.hpp>

namespace tessera::kernels::attention_backward::sm80 {

/// C[Rows * 16][Columns * 8] += A B of a warp, `Depth` steps of 16. `load_a(fragment, row, k)` and
/// `load_b(fragment, k, column pair)` fill the operands.
template <class Element, int Depth, int Rows, int Columns, class LoadA, class LoadB>
__device__ __forceinline__ void multiply(accumulator (&sums)[Rows][Columns], const LoadA& load_a,
                                         const LoadB& load_b) {
  using words = prim::cuda::half_words<Element>;
  static_assert(Columns % 2 == 0);
#pragma unroll
  for (int k = 0; k < Depth; ++k) {
    fragment_a a[Rows];
#pragma unroll
    for (int m = 0; m < Rows; ++m) load_a(a[m].reg, m, k);
#pragma unroll
    for (int n = 0; n < Columns / 2; ++n) {
      fragment_b2 b;
      load_b(b.reg, k, n);
#pragma unroll
      for (int m = 0; m < Rows; ++m) {
        words::template multiply_add<0>(sums[m][2 * n], a[m], b);
        words::template multiply_add<1>(sums[m][2 * n + 1], a[m], b);
      }
    }
  }
}

/// Where a lane puts what it has of 16 rows x 16 columns of sums into a tile of scores: from sm_90
/// on a row of 16 bytes of matrices, before that two elements each.
template <class Scores>
__device__ __forceinline__ std::uint32_t put_place(unsigned lane) {
#if __CUDA_ARCH__ >= 900
  return Scores::lane_of_a(lane);
#else
  return Scores::offset(lane / 4, 0) + lane % 4 * 4;
#endif
}
template <class Element, class Scores>
__device__ __forceinline__ void put_pair(std::uint32_t place, int row_step, int column_step,
                                         const accumulator& left, const accumulator& right) {
  using words = prim::cuda::half_words<Element>;
  const std::uint32_t to = Scores::step(place, row_step, column_step);
  const std::uint32_t packed[4] = {
      words::pack(left.at[0], left.at[1]), words::pack(left.at[2], left.at[3]),
      words::pack(right.at[0], right.at[1]), words::pack(right.at[2], right.at[3])};
#if __CUDA_ARCH__ >= 900
  prim::cuda::store_matrices(to, packed);
#else
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    prim::cuda::store_shared_4((to ^ (i / 2 * 16u)) + i % 2 * 8 * Scores::row_bytes, packed[i]);
  }
#endif
}

}  // namespace tessera::kernels::attention_backward::sm80
