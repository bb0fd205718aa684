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

}  // namespace tessera::prim::cuda
