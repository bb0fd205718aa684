// Scores of a warpgroup's 64 rows become weights: maxima, exponentials, row sums, rescaling.
//
// Weights, sums of weights and sums of values are relative to a reference maximum that stays behind
// the true one: exact all the same, as all three share it. It moves only where a score passes it by
// more than `rescale_above`, so that the usual tile needs neither shuffles nor rescaling: between
// the products of one tile and those of the next stands nothing but the rounding of the weights.
// Where nothing is done to scores their maximum is not even asked for (trusted_weights.hpp).
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/common/dropout_bits.hpp>
#include <tessera/kernels/attention/common/hidden_logits.hpp>
#include <tessera/kernels/attention/sm90/kept_queries.hpp>
#include <tessera/kernels/attention/sm90/tile_classes.hpp>
#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/tanh.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>

namespace tessera::kernels::attention::sm90 {

inline constexpr float ln_2 = 0.693147180559945309417f;
template <class Traits>
inline constexpr float nothing_seen = nothing_seen_of(Traits::config.type);

/// Registers of a lane: its rows are l / 4 and l / 4 + 8 of its warp's 16, `half` 0 and 1.
template <class Traits>
struct lane_tile {
  float scores[Traits::block_kv / 2];
  float out[Traits::v_columns / 2];  ///< sums of weights times values
  std::uint32_t weights[Traits::weight_words];
  kept_queries<Traits> queries;
  float reference[2];       ///< in powers of 2, less the headroom
  float sum[2];             ///< of this lane's weights
  bool looks;               ///< trusts_reference: the warp looks for maxima in the rest
  float scale;              ///< f8_e4m3: launch_args::log2_scale of the heads of the work tile
  float size[2];            ///< caps_exponents: largest products of this lane, without their signs
  position rows[2];         ///< calls_functors
  tile_walk walk;           ///< walks_tiles
  const void* biases[2];    ///< score_mod::loads_ahead: of its rows
  unsigned bias_at[2];      ///< brings_biases: its `chunk_of_line` for each of its rows
  rounds_of_row rounds[2];  ///< begins_draws: what draws for its rows begin with
  /// adds_distances, in powers of 2: what a key of distance adds, and the position that it counts
  /// from, less the lane's first column; what scores of the tile at hand lack of their logits.
  float factor[2];
  int stands[2];
  float lacks[2];
  bool paired;  ///< pairs_rows: both rows of all lanes of the warp have the same `reference_of`
};

/// The lane for the half tile that a diagonal ends with, and what it leaves.
template <class Traits>
__device__ __forceinline__ lane_tile<half_tile<Traits>> lane_of_half(
    const lane_tile<Traits>& lane) {
  lane_tile<half_tile<Traits>> half;
  half.looks = lane.looks;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    half.reference[row] = lane.reference[row];
    half.sum[row] = lane.sum[row];
  }
  return half;
}
template <class Traits>
__device__ __forceinline__ void take_half(lane_tile<Traits>& lane,
                                          const lane_tile<half_tile<Traits>>& half) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    lane.reference[row] = half.reference[row];
    lane.sum[row] = half.sum[row];
  }
#pragma unroll
  for (int i = 0; i < half_tile<Traits>::weight_words; ++i) lane.weights[i] = half.weights[i];
}

/// What scores of a lane's row are relative to.
template <class Traits>
__device__ __forceinline__ float reference_of(const lane_tile<Traits>& lane, int half) {
  if constexpr (Traits::adds_distances) return lane.reference[half] - lane.lacks[half];
  return lane.reference[half];
}

/// The largest logit of a row, in powers of 2, of the largest score of each of its lanes.
template <class Traits>
__device__ __forceinline__ float largest_logit(const lane_tile<Traits>& lane, float most, int half,
                                               float log2_scale) {
  if constexpr (Traits::adds_distances) {
    return prim::cuda::maximum_of_quad(fmaf(most, log2_scale, lane.lacks[half]));
  }
  return prim::cuda::maximum_of_quad(most) * log2_scale;
}

/// What scores of a lane's row times are powers of 2.
template <class Traits>
__device__ __forceinline__ float log2_scale_of(const lane_tile<Traits>& lane,
                                               const launch_args& args) {
  return Traits::codes_of_heads ? lane.scale : args.log2_scale;
}

/// The row of a register of `scores` or `out`.
constexpr int half_of(int i) {
  return (i >> 1) & 1;
}

/// Up to here x + x^3 (tanh_first + x^2 tanh_second) is tanh to 5e-7 of the value.
inline constexpr float tanh_short = 0.25f;
inline constexpr float tanh_first = -0.33324571f, tanh_second = 0.12876421f;

/// The capped product that is not near the cap, or -inf.
__device__ __forceinline__ float cap_by_series(float x, const product_cap& cap) {
  const float square = x * x;
  return fmaf(fmaf(square, cap.second, cap.first) * square, x, x);
}

/// Products become products below a cap. Where none of the warp comes near the cap, the series
/// alone will do, without the unit that has the exponentials to make; if the row takes it into
/// exponents, products stay what they are and the result is true.
template <class Traits>
__device__ __forceinline__ bool cap_products(lane_tile<Traits>& lane, const product_cap& cap) {
  float large[4] = {};
#pragma unroll
  for (int i = 0; i < Traits::block_kv / 2; ++i) {
    large[i & 3] = fmaxf(large[i & 3], fabsf(lane.scores[i]));
  }
  lane.size[0] = fmaxf(large[0], large[1]);
  lane.size[1] = fmaxf(large[2], large[3]);
  const float largest = fmaxf(lane.size[0], lane.size[1]);
  // NaN, which fmaxf leaves out, stays what it is.
  if (prim::cuda::any_of_warp(largest > cap.near)) {
#pragma unroll
    for (float& x : lane.scores) x = prim::cuda::tanh_fast(x * cap.rate) * cap.inverse_rate;
    return false;
  }
  if constexpr (!Traits::caps_exponents) {
#pragma unroll
    for (float& x : lane.scores) x = cap_by_series(x, cap);
  }
  return Traits::caps_exponents;
}

/// The largest score of each of the lane's rows; `uncapped`: scores are products that
/// `cap_products` has left alone, whose order the cap keeps.
template <class Traits>
__device__ __forceinline__ void largest_scores(const lane_tile<Traits>& lane,
                                               const launch_args& args, bool uncapped,
                                               float (&most)[2]) {
  float chain[4];  // two a row
#pragma unroll
  for (int i = 0; i < 4; ++i) chain[i] = lane.scores[i];
#pragma unroll
  for (int i = 4; i < Traits::block_kv / 2; ++i) {
    chain[i & 3] = fmaxf(chain[i & 3], lane.scores[i]);
  }
  most[0] = fmaxf(chain[0], chain[1]);
  most[1] = fmaxf(chain[2], chain[3]);
  if constexpr (Traits::caps_exponents) {
    if (!uncapped) return;
#pragma unroll
    for (float& x : most) x = cap_by_series(x, args.cap);
  }
}

/// Rows of 16 bits that trust their reference: where the largest score of a lane is so far below
/// the reference of its row, in powers of 2, scores are so different that later ones may well pass
/// the reference by more than weights can (`most_of_tile`). Warps that look are waited for by those
/// that do not, so that few sizes of scores should have both. Distances part the scores of a tile
/// more than later ones pass them.
template <class Traits>
inline constexpr float far_below = Traits::config.type == dtype::f16
                                       ? (Traits::adds_distances ? 16.0f : 8.0f)
                                       : (Traits::divides_weights ? 56.0f : 68.0f);

/// True if the largest scores of a lane of the warp lie far below its rows' references. Not those
/// of rows that see nothing of the tile, or are not used. Distances part the scores of different
/// tiles: of rows that add them, below the largest of the tile.
template <class Traits>
__device__ __forceinline__ bool lie_far_below(const lane_tile<Traits>& lane,
                                              const launch_args& args, const float (&most)[2]) {
  bool far = false;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float log2_scale = log2_scale_of(lane, args);
    const float above = Traits::adds_distances
                            ? prim::cuda::maximum_of_quad(most[half]) * log2_scale
                            : reference_of(lane, half);
    const float below = fmaf(-most[half], log2_scale, above);
    far |= below > far_below<Traits> && below < -nothing_seen<Traits> / 2;
  }
  return prim::cuda::any_of_warp(far);
}

/// The first reference of a row: the maximum of its first tile. `most`: the largest scores of this
/// lane.
template <class Traits>
__device__ __forceinline__ void set_reference(lane_tile<Traits>& lane, const launch_args& args,
                                              bool uncapped, float (&most)[2]) {
  largest_scores(lane, args, uncapped, most);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float logit = largest_logit(lane, most[half], half, log2_scale_of(lane, args));
    lane.reference[half] =
        fmaxf(logit, nothing_seen<Traits>) - headroom_of(Traits::config, Traits::trusts_reference);
    lane.sum[half] = 0.0f;
  }
  lane.looks = false;
}

/// Moves references that a score has passed too far. The products that add to `out` are under way:
/// if this is true, `rescale_out` is to follow when they have ended, by factors that wait in shared
/// memory, where `factors` is the lane's: in registers they would be in the way of every tile.
/// `must`: they move to the maximum, passed too far or not.
template <class Traits>
__device__ __forceinline__ bool follow_maximum(lane_tile<Traits>& lane, const launch_args& args,
                                               bool uncapped, float2* factors, bool must = false) {
  const auto passes = [&](float most, int half) {
    if constexpr (Traits::codes_of_heads) {
      return most * lane.scale > lane.reference[half] + args.rescale_above;
    } else {
      return most > fmaf(reference_of(lane, half), args.inverse_scale, args.rescale_above);
    }
  };
  // No capped product is larger than the product without its sign, which is there already.
  if (Traits::caps_exponents && uncapped &&
      !prim::cuda::any_of_warp(passes(lane.size[0], 0) || passes(lane.size[1], 1))) {
    return false;
  }
  float most[2];
  largest_scores(lane, args, uncapped, most);
  if constexpr (Traits::trusts_reference && !Traits::codes_of_heads) {
    if (!lane.looks) lane.looks = lie_far_below(lane, args, most);
  }
  if (!prim::cuda::any_of_warp(must || passes(most[0], 0) || passes(most[1], 1))) return false;
  float rescale[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float logit = largest_logit(lane, most[half], half, log2_scale_of(lane, args));
    const float reference =
        fmaxf(logit - headroom_of(Traits::config, Traits::trusts_reference), lane.reference[half]);
    rescale[half] = prim::cuda::exp2_fast(lane.reference[half] - reference);
    lane.reference[half] = reference;
    lane.sum[half] *= rescale[half];
  }
  // The four lanes of a quad have the same rows, and so the same factors, in one place.
  *factors = make_float2(rescale[0], rescale[1]);
  return true;
}

/// Makes sums of values relative to references that have moved.
template <class Traits>
__device__ __forceinline__ void rescale_out(lane_tile<Traits>& lane, const float2* factors) {
  const float2 rescale = *factors;
#pragma unroll
  for (int i = 0; i < Traits::v_columns / 2; ++i) {
    lane.out[i] *= half_of(i) == 0 ? rescale.x : rescale.y;
  }
}

/// Scores become weights, in f32 where they are; `sum` takes those of the lane's rows. True if one
/// of the lane's may be too large to be rounded, as far as sums that began with 0 say.
template <class Traits>
__device__ __forceinline__ bool exponentiate(lane_tile<Traits>& lane, const launch_args& args,
                                             bool uncapped, float (&sum)[2]) {
  float chain[4] = {sum[0], 0.0f, sum[1], 0.0f};
  const float reference[2] = {reference_of(lane, 0), reference_of(lane, 1)};
  const auto weigh = [&](int i, float scale) {
    lane.scores[i] = prim::cuda::exp2_fast(fmaf(lane.scores[i], scale, -reference[half_of(i)]));
    chain[i & 3] += lane.scores[i];
  };
  if (Traits::caps_exponents && uncapped) {
    const float first = args.cap.first * args.log2_scale;
    const float second = args.cap.second * args.log2_scale;
#pragma unroll
    for (int i = 0; i < Traits::block_kv / 2; ++i) {
      const float square = lane.scores[i] * lane.scores[i];
      weigh(i, fmaf(fmaf(square, second, first), square, args.log2_scale));
    }
  } else {
#pragma unroll
    for (int i = 0; i < Traits::block_kv / 2; ++i) weigh(i, log2_scale_of(lane, args));
  }
  sum[0] = chain[0] + chain[1];
  sum[1] = chain[2] + chain[3];
  constexpr float most = most_of_tile(Traits::config.type, Traits::divides_weights);
  if constexpr (Traits::codes_of_heads) {
    return chain[0] > most || chain[1] > most || chain[2] > most || chain[3] > most;
  }
  return sum[0] > most || sum[1] > most;
}

/// Rounds weights to 16 bits: sums of scores are laid out as the operand of the next product. To 8
/// bits: a word has keys c and c + 1 of eight and those of the next eight, which is the order that
/// values_across.hpp has values in.
template <class Traits>
__device__ __forceinline__ void round_weights(lane_tile<Traits>& lane) {
  if constexpr (Traits::codes_of_heads) {
#pragma unroll
    for (int i = 0; i < Traits::weight_words; ++i) {
      const float* const x = lane.scores + i / 2 * 8 + i % 2 * 2;
      lane.weights[i] = Traits::words::pack(x[0], x[1], x[4], x[5]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < Traits::block_kv / 4; ++i) {
      lane.weights[i] = Traits::words::pack(lane.scores[2 * i], lane.scores[2 * i + 1]);
    }
  }
}

}  // namespace tessera::kernels::attention::sm90
