// The softmax of a row, whose pairs with a tile of keys are a line of threads; and backwards, the
// gradients of its scores.
#pragma once

#include <cfloat>
#include <cstdint>

#include <tessera/kernels/sparse_attention/sm80/float_tiles.hpp>
#include <tessera/prim/common/online_softmax.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

/// What turns a product into a logit.
struct score_units {
  float scale = 1.0f;
  float cap = 0.0f;  ///< 0: none

  __device__ __forceinline__ float logit(float product) const {
    const float score = product * scale;
    return cap == 0.0f ? score : cap * tanhf(score / cap);
  }
  /// The slope of the cap, 1 - tanh^2: of a saturated tanh nothing would be left, so it is
  /// 4 e / (1 + e)^2 with e = exp(-2 |x / cap|).
  __device__ __forceinline__ float slope(float product) const {
    if (cap == 0.0f) return 1.0f;
    const float e = expf(-2.0f * fabsf(product * scale / cap));
    return 4.0f * e / ((1.0f + e) * (1.0f + e));
  }
};

/// Maximum and denominator of the tiles seen so far; all threads of the line have the same.
struct softmax_line : prim::softmax_state {
  /// Takes in the scores of a tile, -inf where hidden: the weight of the thread's own. What was
  /// summed up with weights before is to be multiplied by `rescale`.
  __device__ __forceinline__ float take(float score, float& rescale) {
    const float before = maximum;
    maximum = fmaxf(before, maximum_of_line(score));
    const float shift = prim::finite_maximum(maximum);
    rescale = before == maximum ? 1.0f : expf(before - shift);
    const float weight = expf(score - shift);
    denominator = denominator * rescale + sum_of_line(weight);
    return weight;
  }
};

/// The same with the sum of weighted values.
struct attention_line {
  softmax_line softmax;
  line_sums sums;

  __device__ __forceinline__ void start() {
    softmax = {};
    sums.clear();
  }
  __device__ __forceinline__ void add(float score, const float_tile& values) {
    float rescale;
    const float weight = softmax.take(score, rescale);
    if (rescale != 1.0f) sums.scale(rescale);
    sums.add(weight, values);
  }
  /// Sums become the output.
  __device__ __forceinline__ prim::softmax_result finish(const float* sinks, std::int64_t count,
                                                         std::int64_t stride) {
    const prim::softmax_result result =
        prim::finish_row(softmax, sinks, static_cast<int>(count), stride, true);
    sums.scale(result.scale);
    return result;
  }
};

/// Shared memory: queries, keys, values.
inline int attend_bytes(std::int64_t head_dim, std::int64_t v_head_dim) {
  return (2 * float_tile::words(head_dim) + float_tile::words(v_head_dim)) *
         static_cast<int>(sizeof(float));
}

/// Weight and gradient of a pair; both 0 where it is hidden.
struct pair_gradient {
  float weight = 0.0f;
  float d_score = 0.0f;

  /// `gradient` is <d_out, v>; `shift` and `correction` are lse and D of the row.
  static __device__ __forceinline__ pair_gradient of(float score, float gradient, float slope,
                                                     float shift, float correction, float times) {
    if (score < -FLT_MAX) return {};
    const float weight = expf(score - shift) * times;
    const float d_score = weight * (gradient - correction) * slope;
    // NaN of the gradient reaches d_v too, which d_out alone would not make it do.
    return {fmaf(d_score, 0.0f, weight), d_score};
  }
};

}  // namespace tessera::kernels::sparse_attention::sm80
