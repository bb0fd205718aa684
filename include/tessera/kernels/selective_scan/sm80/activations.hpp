// Gates and steps of state spaces on the device, with their slopes. NaN goes through all of them.
#pragma once

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::selective_scan::sm80 {

/// exp(-|x|) / (1 + exp(-|x|)) or 1 / (1 + exp(-|x|)): exact to rounding on both sides of 0.
__device__ __forceinline__ float sigmoid(float x) {
  const float power = expf(-fabsf(x));
  return (x < 0.0f ? power : 1.0f) / (1.0f + power);
}

/// silu(x) = x s with s = sigmoid(x), and its slope s (1 + x (1 - s)).
struct silu_value {
  float value, slope;
};
__device__ __forceinline__ silu_value silu(float x) {
  const float s = sigmoid(x);
  return {x * s, s * fmaf(x, 1.0f - s, 1.0f)};
}

/// log(1 + exp(x)).
__device__ __forceinline__ float softplus(float x) {
  return (x < 0.0f ? 0.0f : x) + log1pf(expf(-fabsf(x)));
}

/// The same for calls whose numbers have 16 bits: to 1e-6 of it.
__device__ __forceinline__ float softplus_fast(float x) {
  constexpr float log2_e = 1.44269504088896f, log_2 = 0.693147180559945f;
  const float power = prim::cuda::exp2_fast(-fabsf(x) * log2_e);
  const float series =
      power * fmaf(power, fmaf(power, fmaf(power, -0.25f, 0.333333333f), -0.5f), 1.0f);
  return (x < 0.0f ? 0.0f : x) + (power < 0.02f ? series : log_2 * __log2f(1.0f + power));
}

/// The step of dt and its bias, and how it changes with them: 0 beyond its bounds.
struct step_value {
  float step, slope;
};
__device__ __forceinline__ step_value step_of(const state_space_kernel_args& args, float raw) {
  step_value at{raw, 1.0f};
  if (args.dt_softplus) {
    at = {args.x.type == dtype::f32 ? softplus(raw) : softplus_fast(raw), sigmoid(raw)};
  }
  if (at.step < args.dt_min) return {args.dt_min, 0.0f};
  if (at.step > args.dt_max) return {args.dt_max, 0.0f};
  return at;
}

}  // namespace tessera::kernels::selective_scan::sm80
