// Gates of every channel of every token, with the powers and logarithms of the hardware.
#pragma once

#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::delta_rule::sm90 {

/// log(1 + exp(x)) to 4e-6 of it.
__device__ __forceinline__ float softplus_fast(float x) {
  const float u = prim::cuda::exp2_fast(-fabsf(x) * 1.44269504088896f);
  const float series = u * (1.0f - u * (0.5f - u * (0.333333333f - u * 0.25f)));
  const float more = u < 0.0625f ? series : __logf(1.0f + u);
  return fmaxf(x, 0.0f) + (x == x ? more : x);
}
__device__ __forceinline__ float sigmoid_fast(float x) {
  return prim::cuda::reciprocal_fast(1.0f + prim::cuda::exp2_fast(-x * 1.44269504088896f));
}

}  // namespace tessera::kernels::delta_rule::sm90
