// The running softmax of one row: maximum and denominator, merged tile by tile and split by split.
//
// Logits stay in natural units until the maximum is subtracted; only the difference is multiplied
// by log2(e) for exp2. Multiplying first would round logits of 1e4 by 5e-4, and weights by as much.
//
// M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", arXiv:1805.02867.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include <tessera/prim/common/host_device.hpp>

namespace tessera::prim {

inline constexpr float log2_e = 1.44269504088896340736f;
inline constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// The maximum to subtract: 0 instead of -inf, so that exp(-inf - m) is 0 and not NaN.
TESSERA_HD constexpr float finite_maximum(float maximum) noexcept {
  return maximum == minus_infinity ? 0.0f : maximum;
}

/// Maximum and denominator of the logits seen so far; an empty row is (-inf, 0).
struct softmax_state {
  float maximum = minus_infinity;
  float denominator = 0.0f;  ///< sum of exp(logit - maximum)
};

/// What a finished row is scaled by, and what it reports.
struct softmax_result {
  float scale = 0.0f;              ///< multiplies the accumulated sum of exp(s - maximum) v
  float lse = minus_infinity;      ///< log of the sum of exp, sinks included
  float row_max = minus_infinity;  ///< sinks included
  float shift = 0.0f;              ///< exp(s - shift) * weight_scale is the weight of logit s
  float weight_scale = 0.0f;
};

/// Folds `count` sink logits into the state and finishes the row. Sinks enter once,
/// here, whatever the tiling. An empty row gives scale 0 and lse -inf; a sink of +inf gives 0 and
/// +inf.
TESSERA_HD inline softmax_result finish_row(softmax_state state, const float* sinks, int count,
                                            std::int64_t sink_stride, bool normalize) noexcept {
  float maximum = state.maximum;
  for (int t = 0; t < count; ++t) {
    const float sink = sinks[t * sink_stride];
    if (sink > maximum) maximum = sink;
  }
  if (maximum == minus_infinity && !(state.denominator != 0.0f)) return {};
  const float shift = finite_maximum(maximum);
  // With a sink of +inf every finite logit vanishes, and inf - inf must not make NaN of it.
  const auto term = [shift](float logit) {
    return logit == shift ? 1.0f : std::exp(logit - shift);
  };
  const float correction = state.maximum == minus_infinity && state.denominator == 0.0f
                               ? 0.0f
                               : term(finite_maximum(state.maximum));
  float denominator = state.denominator * correction;  // NaN stays, however far above a sink is
  for (int t = 0; t < count; ++t) denominator += term(sinks[t * sink_stride]);

  softmax_result finished;
  finished.row_max = maximum;
  finished.lse = maximum + std::log(denominator);
  finished.weight_scale = normalize ? 1.0f / denominator : 1.0f;
  finished.scale = correction * finished.weight_scale;
  finished.shift = shift;
  return finished;
}

}  // namespace tessera::prim
