// The running softmax of a warp's rows: row maxima, P = 2^(score - row_max), row sums, and the
// rescaling of what was summed relative to an older maximum.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm80/dropout.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/warp_tile.hpp>
#include <tessera/kernels/attention/sm80/work_tile.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

inline constexpr float ln_2 = 0.693147180559945309417f;
/// Of logits that are 0 in powers of 2 whatever the products.
inline constexpr float least_log2_scale = 1e-37f;
/// How far the maximum of weights times scales may lie below that of weights, in powers of 2.
inline constexpr float most_below_row_max = 110.0f;

/// Columns 16 d to 16 d + 15 of a row tile's sums become relative to the new maxima.
template <class Traits, class State>
__device__ __forceinline__ void rescale_columns(warp_tile<Traits, State>& warp, int m, int d) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    warp.out[m][2 * d].at[e] *= warp.rescale[m][e / 2];
    warp.out[m][2 * d + 1].at[e] *= warp.rescale[m][e / 2];
  }
}

/// All sums become relative to the maxima that have just moved.
template <class Traits, class State>
__device__ __forceinline__ void rescale_out(warp_tile<Traits, State>& warp) {
#pragma unroll
  for (int d = 0; d < Traits::v_groups; ++d) {
#pragma unroll
    for (int m = 0; m < Traits::row_tiles; ++m) rescale_columns(warp, m, d);
  }
}

/// Row maxima, and all sums but those of kernels that rescale them among the products, become those
/// of a tile with maxima `tile_max` of a lane. Sums of values that have scales have a maximum of
/// their own (`update_value_max`).
template <class Traits, class State>
__device__ __forceinline__ void move_row_max(warp_tile<Traits, State>& warp,
                                             const float (&tile_max)[Traits::row_tiles][2]) {
#pragma unroll
  for (int m = 0; m < Traits::row_tiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float row_max =
          fmaxf(prim::cuda::maximum_of_quad(tile_max[m][half]) - warp.args.headroom,
                warp.row_max[m][half]);
      const float rescale = prim::cuda::exp2_fast(warp.row_max[m][half] - row_max);
      warp.row_max[m][half] = row_max;
      warp.row_sum[m][half] *= rescale;
      if constexpr (Traits::rescales_among_products) {
        warp.rescale[m][half] = rescale;
      } else {
        if (Traits::codes && warp.args.call.v_token_scales.data != nullptr) continue;
#pragma unroll
        for (int d = 0; d < Traits::v_tiles; ++d) {
          warp.out[m][d].at[2 * half] *= rescale;
          warp.out[m][d].at[2 * half + 1] *= rescale;
        }
      }
    }
  }
}

/// New row maxima where one has grown by more than `rescale_above`: sums stay relative to the old
/// ones otherwise, which is exact and saves rescaling. True if maxima moved: the sums of kernels
/// that rescale among the products are still relative to the old ones.
template <class Traits, class State>
__device__ __forceinline__ bool update_row_max(warp_tile<Traits, State>& warp) {
  float tile_max[Traits::row_tiles][2];
  bool grown = false;
#pragma unroll
  for (int m = 0; m < Traits::row_tiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = warp.scores[m][0].at[2 * half];
#pragma unroll
      for (int n = 0; n < Traits::key_tiles; ++n) {
        most =
            fmaxf(most, fmaxf(warp.scores[m][n].at[2 * half], warp.scores[m][n].at[2 * half + 1]));
      }
      tile_max[m][half] = most * warp.log2_scale(m, half);
      grown = grown || tile_max[m][half] > warp.row_max[m][half] + warp.args.rescale_above;
    }
  }
  const bool moved = prim::cuda::any_of_warp(grown);
  if (moved) move_row_max(warp, tile_max);
  return moved;
}

/// Weights times the scales of their values are f16: what is summed is relative to a maximum of its
/// own, the largest such product of the keys that the row sees, whatever the largest weight is.
template <class Traits, class State>
__device__ __forceinline__ void update_value_max(warp_tile<Traits, State>& warp) {
  lane_scales<Traits::block_kv> above;  // powers of 2 above the scales
#pragma unroll
  for (int part = 0; part < warps_of<Traits::block_kv>; ++part) {
    const int exponent =
        static_cast<int>(__float_as_uint(warp.value_scales.part[part]) >> 23 & 0xffu);
    above.part[part] = exponent < 255 ? static_cast<float>(exponent - 126) : nothing_seen<Traits>;
  }
  float tile_max[Traits::row_tiles][2];
#pragma unroll
  for (int m = 0; m < Traits::row_tiles; ++m) {
    // Factors that lead from one maximum to the other are numbers.
    tile_max[m][0] = warp.row_max[m][0] - most_below_row_max + warp.args.headroom;
    tile_max[m][1] = warp.row_max[m][1] - most_below_row_max + warp.args.headroom;
  }
#pragma unroll
  for (int n = 0; n < Traits::key_tiles; ++n) {
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      const float of_key = above.of(n * 8 + warp.lane() % 4 * 2 + odd);
#pragma unroll
      for (int m = 0; m < Traits::row_tiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float x = warp.scores[m][n].at[2 * half + odd];
          tile_max[m][half] = fmaxf(tile_max[m][half], fmaf(x, warp.log2_scale(m, half), of_key));
        }
      }
    }
  }
  bool grown = false;
#pragma unroll
  for (int m = 0; m < Traits::row_tiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      grown = grown || tile_max[m][half] > warp.value_max[m][half] + warp.args.headroom;
    }
  }
  if (!prim::cuda::any_of_warp(grown)) return;
#pragma unroll
  for (int m = 0; m < Traits::row_tiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float value_max =
          fmaxf(prim::cuda::maximum_of_quad(tile_max[m][half]) - warp.args.headroom,
                warp.value_max[m][half]);
      const float rescale = prim::cuda::exp2_fast(warp.value_max[m][half] - value_max);
      warp.value_max[m][half] = value_max;
#pragma unroll
      for (int d = 0; d < Traits::v_tiles; ++d) {
        warp.out[m][d].at[2 * half] *= rescale;
        warp.out[m][d].at[2 * half + 1] *= rescale;
      }
    }
  }
}

/// Sums become relative to the maximum of weights.
template <class Traits, class State>
__device__ __forceinline__ void finish_value_max(warp_tile<Traits, State>& warp) {
#pragma unroll
  for (int m = 0; m < Traits::row_tiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // The whole factor may be above all numbers where sums are small.
      const float root =
          prim::cuda::exp2_fast(0.5f * (warp.value_max[m][half] - warp.row_max[m][half]));
#pragma unroll
      for (int d = 0; d < Traits::v_tiles; ++d) {
        warp.out[m][d].at[2 * half] = warp.out[m][d].at[2 * half] * root * root;
        warp.out[m][d].at[2 * half + 1] = warp.out[m][d].at[2 * half + 1] * root * root;
      }
    }
  }
}

/// P of eight keys becomes what is multiplied with their codes: relative to the maximum of such
/// products, times the scales of their values. A weight of 0 stays 0, whatever the scale of a value
/// that nobody sees.
template <class Traits, class State>
__device__ __forceinline__ void scale_weights(const warp_tile<Traits, State>& warp, int m, int n,
                                              float (&p)[4]) {
  const int key = n * 8 + warp.lane() % 4 * 2;
  const float scales[2] = {warp.value_scales.of(key), warp.value_scales.of(key + 1)};
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const float weight = prim::cuda::exp2_fast(
        fmaf(warp.scores[m][n].at[e], warp.log2_scale(m, e / 2), -warp.value_max[m][e / 2]));
    p[e] = p[e] == 0.0f ? 0.0f : weight * scales[e % 2];
  }
}

/// The scores of eight keys become P, packed for 16-bit elements, and enter the row sums.
template <class Traits, class State>
__device__ __forceinline__ void exponentiate(warp_tile<Traits, State>& warp,
                                             const kept_weights<Traits>& kept, int m, int n) {
  using words = prim::cuda::half_words<typename Traits::operand>;
  const prim::cuda::accumulator& s = warp.scores[m][n];
  float p[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    p[e] = prim::cuda::exp2_fast(fmaf(s.at[e], warp.log2_scale(m, e / 2), -warp.row_max[m][e / 2]));
  }
  warp.row_sum[m][0] += p[0] + p[1];
  warp.row_sum[m][1] += p[2] + p[3];
#pragma unroll
  for (int e = 0; e < 4; ++e) p[e] = kept.has(m, n, e) ? p[e] : 0.0f;
  if constexpr (Traits::codes) {
    if (warp.args.call.v_token_scales.data != nullptr) scale_weights(warp, m, n, p);
  }
  if constexpr (Traits::use_3xtf32) {
#pragma unroll
    for (int e = 0; e < 4; ++e) warp.scores[m][n].at[e] = p[e];
  } else {
    warp.p[n / 2][m].reg[n % 2 * 2] = words::pack(p[0], p[1]);
    warp.p[n / 2][m].reg[n % 2 * 2 + 1] = words::pack(p[2], p[3]);
  }
}

/// P of the score `x` of row `half` of row tile m and a key, as `exponentiate` computes it.
template <class Traits, class State>
__device__ __forceinline__ float p_of(const warp_tile<Traits, State>& warp, float x, int thread,
                                      int m, int half, int key) {
  const float p = prim::cuda::exp2_fast(fmaf(x, warp.log2_scale(m, half), -warp.row_max[m][half]));
  if constexpr (Traits::has(attention_feature::dropout)) {
    const bool keeps =
        keeps_weight(warp.args, static_cast<int>(warp.block.work.seq.index),
                     query_at(warp.args, warp.block, row_of_thread<Traits>(thread, m, half)), key);
    return keeps ? p : 0.0f;
  }
  return p;
}

/// Maximum and denominator of a row in natural units.
template <class Traits, class State>
__device__ __forceinline__ prim::softmax_state state_of(const warp_tile<Traits, State>& warp, int m,
                                                        int half) {
  const float row_max = warp.row_max[m][half];
  return {row_max == nothing_seen<Traits> ? prim::minus_infinity : row_max * ln_2,
          prim::cuda::sum_of_quad(warp.row_sum[m][half])};
}

}  // namespace tessera::kernels::attention::sm80
