// Values that are infinite or NaN, added row by row.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

/// Adds to a warp's sums the products of the keys [key0, min(key0 + block_kv, end)) and their
/// values that are not finite, for the rows that see them. Weights that are 0 add nothing, as if
/// their key were hidden. `values` is that of key 0, in units of 16 bits; `weight_of(score, m,
/// half, key)` is the weight of a score of row `half` of row tile m.
template <class Traits, class WeightOf>
__device__ __forceinline__ void add_products_not_finite(
    const attention_kernel_args& call, const std::uint16_t* values, int key0, int end,
    const prim::cuda::accumulator (&scores)[Traits::row_tiles][Traits::key_tiles],
    prim::cuda::accumulator (&sums)[Traits::row_tiles][Traits::v_tiles],
    const WeightOf& weight_of) {
  const int keys = min(Traits::block_kv, end - key0);
  const auto lane = static_cast<int>(prim::cuda::thread_index() % prim::cuda::warp_size);
#pragma unroll 1
  for (int j = 0; j < keys; ++j) {
    float weight[Traits::row_tiles][2];
#pragma unroll
    for (int m = 0; m < Traits::row_tiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float mine = prim::minus_infinity;
#pragma unroll
        for (int n = 0; n < Traits::key_tiles; ++n) {
          const float even = scores[m][n].at[2 * half];
          const float odd = scores[m][n].at[2 * half + 1];
          mine = n == j / 8 ? (j % 2 == 0 ? even : odd) : mine;
        }
        mine = __shfl_sync(prim::cuda::all_lanes, mine, (lane & ~3) | (j % 8 / 2));
        weight[m][half] = weight_of(mine, m, half, key0 + j);
      }
    }
    const auto* row =
        reinterpret_cast<const typename Traits::stored*>(values) + (key0 + j) * call.v_strides.row;
#pragma unroll
    for (int d = 0; d < Traits::v_tiles; ++d) {
#pragma unroll
      for (int one = 0; one < 2; ++one) {
        const int column = d * 8 + lane % 4 * 2 + one;
        const float value = column < call.v_head_dim ? Traits::access::load(row[column]) : 0.0f;
        if (isfinite(value)) continue;
#pragma unroll
        for (int m = 0; m < Traits::row_tiles; ++m) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float& sum = sums[m][d].at[2 * half + one];
            sum = weight[m][half] != 0.0f ? fmaf(weight[m][half], value, sum) : sum;
          }
        }
      }
    }
  }
}

}  // namespace tessera::kernels::attention::sm80
