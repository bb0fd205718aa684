// Weights by a reference that is trusted: nobody looks for the maximum of scores, which is a sixth
// of the work beside the products. That a score has passed the reference too far is seen in the
// sums of weights, and the warp does the tile once more. Rows of 16 bits make its products again,
// since nothing is left of scores whose weights are infinite, and look for maxima from then on.
// Others divide the weights (`divides_weights`): those of 8 bits, more often, those that add
// distances, which have no registers for products, and wide heads, whose keys are gone by then.
// They look for maxima where the first tile, or a step of the reference, says that scores lie far
// apart.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm90/score_mod.hpp>
#include <tessera/kernels/attention/sm90/softmax.hpp>
#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>

namespace tessera::kernels::attention::sm90 {

/// Scores of the warp's 16 rows, by mma.sync: one warp alone cannot ask for a wgmma, whose sums lie
/// in the registers of a warp alike. `queries` and `keys` are the panels that wgmma reads: of the
/// warpgroup's rows, of the tile.
template <class Traits>
__device__ __forceinline__ void make_scores_again(lane_tile<Traits>& lane, std::uint32_t queries,
                                                  std::uint32_t keys) {
  const int thread = static_cast<int>(prim::cuda::thread_index());
  const int index = thread % prim::cuda::warp_size;
  const int warp = thread % prim::cuda::warpgroup_size / prim::cuda::warp_size;
#pragma unroll
  for (float& score : lane.scores) score = 0.0f;
#pragma unroll 1
  for (int step = 0; step < Traits::qk_steps; ++step) {
    const int panel = step / 4;
    const int chunk = step % 4 * 2;
    // Lane l gives the address of row l % 16 of eight columns, or of the next eight.
    const int line = warp * rows_of_warp + index % rows_of_warp;
    prim::cuda::fragment_a a;
    prim::cuda::load_matrices(a.reg, queries + panel * Traits::q_panel_bytes +
                                         line * prim::cuda::panel_row_bytes +
                                         ((chunk + index / rows_of_warp) ^ line % 8) * 16);
    // Of eight keys both eights of columns, then those of the next keys.
    const int key = index / 16 * 8 + index % 8;
    const std::uint32_t first = keys + panel * Traits::kv_panel_bytes +
                                key * prim::cuda::panel_row_bytes +
                                ((chunk + index / 8 % 2) ^ key % 8) * 16;
#pragma unroll
    for (int i = 0; i < Traits::block_kv / 16; ++i) {
      prim::cuda::fragment_b2 b;
      prim::cuda::load_matrices(b.reg, first + i * 16 * prim::cuda::panel_row_bytes);
      prim::cuda::accumulator c[2];
#pragma unroll
      for (int e = 0; e < 8; ++e) c[e / 4].at[e % 4] = lane.scores[8 * i + e];
      Traits::words::template multiply_add<0>(c[0], a, b);
      Traits::words::template multiply_add<1>(c[1], a, b);
#pragma unroll
      for (int e = 0; e < 8; ++e) lane.scores[8 * i + e] = c[e / 4].at[e % 4];
    }
  }
}

/// f8_e4m3: where scores of the first tile lie so far apart, in powers of 2, weights of later ones
/// may be infinite, which they are from 2^120 above the reference on.
inline constexpr float far_apart = 96.0f;
/// A reference that has moved so far at once, in powers of 2, may have to move far again.
inline constexpr float long_step = 20.0f;

/// True if scores of the warp's rows, of the first 16 keys of their first tile, lie far below their
/// maximum. Not those that are hidden, nor those of rows that are not used.
template <class Traits>
__device__ __forceinline__ bool lie_far_apart(const lane_tile<Traits>& lane) {
  bool far = false;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float below = fmaf(-lane.scores[i], lane.scale, lane.reference[half_of(i)]);
    far |= below > far_apart && below < -nothing_seen<Traits> / 2;
  }
  return prim::cuda::any_of_warp(far);
}

/// Whether the scores of the first tile say that the warp is to look for maxima in the rest.
template <class Traits>
__device__ __forceinline__ bool begins_to_look(const lane_tile<Traits>& lane,
                                               const launch_args& args, const float (&most)[2]) {
  if constexpr (Traits::codes_of_heads) return lie_far_apart(lane);
  return lie_far_below(lane, args, most);
}

/// Weights up to here are divided.
inline constexpr float most_divided = 0x1p125f;

/// divides_weights: weights of a tile, of which some are too large, and their `sum` become relative
/// to their maximum, if that is larger. A row of which a score has passed the reference by 2^120
/// (bf16: 2^125, f16: 2^118) and more becomes NaN, and is done again (careful_row.hpp).
/// `rescale_out` is to follow.
template <class Traits>
__device__ __forceinline__ void lower_weights(lane_tile<Traits>& lane, float (&sum)[2],
                                              float2* factors) {
  float most[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) most[i] = lane.scores[i];
#pragma unroll
  for (int i = 4; i < Traits::block_kv / 2; ++i) most[i & 3] = fmaxf(most[i & 3], lane.scores[i]);
  constexpr float headroom = headroom_of(Traits::config, Traits::trusts_reference);
  float rescale[2];
  bool looks = lane.looks;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float weight = prim::cuda::maximum_of_quad(fmaxf(most[2 * half], most[2 * half + 1]));
    const float reference = lane.reference[half] + fmaxf(__log2f(weight) - headroom, 0.0f);
    looks |= reference - lane.reference[half] > long_step;
    // By what the reference has moved as it is rounded. Powers below 2^-126 are 0.
    rescale[half] =
        weight > most_divided ? nanf("") : prim::cuda::exp2_fast(lane.reference[half] - reference);
    lane.reference[half] = reference;
    lane.sum[half] *= rescale[half];
    sum[half] *= rescale[half];
  }
#pragma unroll
  for (int i = 0; i < Traits::block_kv / 2; ++i) lane.scores[i] *= rescale[half_of(i)];
  *factors = make_float2(rescale[0], rescale[1]);
  lane.looks = prim::cuda::any_of_warp(looks);
}

/// Whether distances are added in the exponents of both rows at once.
template <class Traits>
__device__ __forceinline__ bool weighs_pairs(const lane_tile<Traits>& lane, bool follows) {
  if constexpr (Traits::pairs_rows) return lane.paired && !follows;
  return false;
}

/// `exponentiate` of products to which distances have not been added.
template <class Traits>
__device__ __forceinline__ bool exponentiate_pairs(lane_tile<Traits>& lane, const launch_args& args,
                                                   float (&sum)[2]) {
  float chain[4] = {};
  const float reference = reference_of(lane, 0);
#pragma unroll
  for (int i = 0; i < Traits::block_kv / 2; i += 4) {
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      const auto ahead = static_cast<float>(lane_keys::ahead(i / 2 + column));
      const float below = fmaf(lane.factor[0], -ahead, -reference);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& score = lane.scores[i + 2 * half + column];
        score = prim::cuda::exp2_fast(fmaf(score, args.log2_scale, below));
        chain[2 * half + column] += score;
      }
    }
  }
  sum[0] = chain[0] + chain[1];
  sum[1] = chain[2] + chain[3];
  constexpr float most = most_of_tile(Traits::config.type, Traits::divides_weights);
  return sum[0] > most || sum[1] > most;
}

/// Scores of a tile become weights. `follows`: maxima are looked for, as some may be -inf, rows
/// have seen none before, or the warp does not trust its references. `hide`: hides what rows do not
/// see of products that have been made again; `draw`: draws_late: which weights dropout keeps. True
/// if `rescale_out` is to follow.
template <class Traits, class Hide, class Draw>
__device__ __forceinline__ bool weigh_by_reference(lane_tile<Traits>& lane, const launch_args& args,
                                                   bool follows, std::uint32_t queries,
                                                   std::uint32_t keys, float2* factors,
                                                   const Hide& hide, const Draw& draw) {
  bool moved = false;
  if (follows) moved = follow_maximum(lane, args, false, factors);
  if constexpr (Traits::pairs_rows) {
    if (follows) lane.paired = lane.paired && !moved;
  }
  // Of tiles that hide keys, and of the one behind them: the first one that a row sees whole.
  if constexpr (Traits::codes_of_heads) {
    if (follows && !lane.looks) lane.looks = lie_far_apart(lane);
  }
  for (;;) {
    float sum[2] = {};
    const bool too_large = [&] {
      if constexpr (Traits::pairs_rows) {
        if (weighs_pairs(lane, follows)) return exponentiate_pairs(lane, args, sum);
      }
      if constexpr (Traits::draws_late) {
        if (args.call.dropout) {
          draw();
          return exponentiate(lane, args, false, sum);
        }
      }
      return exponentiate(lane, args, false, sum);
    }();
    const bool again = !follows && prim::cuda::any_of_warp(too_large);
    if constexpr (Traits::divides_weights) {
      if (again) {
        lower_weights(lane, sum, factors);
        if constexpr (Traits::pairs_rows) lane.paired = false;
      }
      moved = moved || again;
    } else if (again) {
      make_scores_again<Traits>(lane, queries, keys);
      if constexpr (Traits::trusts_far_edge) hide();
      moved = follow_maximum(lane, args, false, factors, true);
      follows = lane.looks = true;
      continue;
    }
    lane.sum[0] += sum[0];
    lane.sum[1] += sum[1];
    return moved;
  }
}

}  // namespace tessera::kernels::attention::sm90
