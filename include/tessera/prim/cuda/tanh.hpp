// The hyperbolic tangent from the exponential and reciprocal units.
#pragma once

#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::prim::cuda {

/// Up to here `tanh_near_zero` is tanh to 2e-7 of the value: x + x P(x^2), fitted for the smallest
/// relative error.
inline constexpr float tanh_near = 0.4f;
__device__ __forceinline__ float tanh_near_zero(float x) {
  const float square = x * x;
  float series = fmaf(square, -0.04779422f, 0.13277629f);
  series = fmaf(square, series, -0.33331882f);
  return fmaf(square * series, x, x);
}

/// tanh to 6e-7 of the value; the exponential's form cancels near zero.
__device__ __forceinline__ float tanh_fast(float x) {
  const float power = exp2_fast(x * (2.0f * log2_e));
  const float far = fmaf(reciprocal_fast(1.0f + power), -2.0f, 1.0f);
  return fabsf(x) < tanh_near ? tanh_near_zero(x) : far;
}

struct value_with_slope {
  float value, slope;
};
/// tanh and its derivative, where `tanh_near_zero` holds.
__device__ __forceinline__ value_with_slope tanh_with_slope_near_zero(float x) {
  const float value = tanh_near_zero(x);
  return {value, fmaf(-value, value, 1.0f)};
}
/// tanh and its derivative at x / (2 log2(e)): the value to 4e-7 of 1, which near zero is more than
/// of itself, the derivative to 3e-6 of itself as long as |x| < 29. From a power of -|x|, which
/// stays finite: of a saturated tanh, 1 - tanh^2 would have no digits.
__device__ __forceinline__ value_with_slope scaled_tanh_with_slope(float x) {
  const float power = exp2_fast(-fabsf(x));
  const float part = reciprocal_fast(1.0f + power);
  const float other_part = power * part;
  return {copysignf(fmaf(other_part, -2.0f, 1.0f), x), 4.0f * part * other_part};
}

}  // namespace tessera::prim::cuda
