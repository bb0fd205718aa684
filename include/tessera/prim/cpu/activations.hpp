// Decays and activations on vector registers. A decay of a recurrence is applied once a token, so
// that its relative error is what a state has after 1 / (1 - decay) tokens times as much of: near 1
// it is rounded correctly but for the last bit.
#pragma once

#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cpu/log.hpp>
#include <tessera/prim/cpu/math.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::prim {

/// exp(x): exactly 1 at 0, within an ulp for |x| < 1/4, else within 3; what is above 88 counts as
/// 88; exactly 0 for -inf; NaN stays NaN.
template <class Isa>
TESSERA_INLINE typename simd<Isa>::reg decay_of(typename simd<Isa>::reg x) {
  using vec = simd<Isa>;
  using reg = typename vec::reg;
  const reg zero = vec::zero(), one = vec::broadcast(1.0f);
  // The series of exp, to x^6 / 6!: the rest is below 2e-8 of the sum.
  reg p = vec::fma(x, vec::broadcast(1.0f / 720.0f), vec::broadcast(1.0f / 120.0f));
  p = vec::fma(x, p, vec::broadcast(1.0f / 24.0f));
  p = vec::fma(x, p, vec::broadcast(1.0f / 6.0f));
  p = vec::fma(x, p, vec::broadcast(0.5f));
  p = vec::fma(x, p, one);
  const reg near_one = vec::fma(x, p, one);
  const reg bounded = vec::sub(zero, vec::max(vec::broadcast(-88.0f), vec::sub(zero, x)));
  const reg far = vec::exp2(vec::mul(bounded, vec::broadcast(log2_e)));
  return vec::select_below(vec::mul(x, x), vec::broadcast(0.0625f), near_one, far);
}

/// The same of one float, by the same arithmetic.
template <class Isa>
TESSERA_INLINE float decay_of(float x) {
  using vec = simd<Isa>;
  return vec::first(decay_of<Isa>(vec::broadcast(x)));
}

/// exp(-|x|).
template <class Isa>
TESSERA_INLINE typename simd<Isa>::reg exp_of_minus_magnitude(typename simd<Isa>::reg x) {
  using vec = simd<Isa>;
  const auto zero = vec::zero();
  return decay_of<Isa>(vec::select_below(x, zero, x, vec::sub(zero, x)));
}

/// 1 / (1 + exp(-x)); exact to rounding on both sides of 0.
template <class Isa>
TESSERA_INLINE typename simd<Isa>::reg sigmoid_of(typename simd<Isa>::reg x) {
  using vec = simd<Isa>;
  const auto power = exp_of_minus_magnitude<Isa>(x);
  const auto one = vec::broadcast(1.0f);
  return vec::div(vec::select_below(x, vec::zero(), power, one), vec::add(one, power));
}

/// silu(x) = x s with s = sigmoid(x), and its slope s (1 + x (1 - s)).
template <class Isa>
struct silu_value {
  typename simd<Isa>::reg value;
  typename simd<Isa>::reg slope;
};
template <class Isa>
TESSERA_INLINE silu_value<Isa> silu_of(typename simd<Isa>::reg x) {
  using vec = simd<Isa>;
  const auto s = sigmoid_of<Isa>(x), one = vec::broadcast(1.0f);
  return {vec::mul(x, s), vec::mul(s, vec::fma(x, vec::sub(one, s), one))};
}

/// log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)).
template <class Isa>
TESSERA_INLINE typename simd<Isa>::reg softplus_of(typename simd<Isa>::reg x) {
  using vec = simd<Isa>;
  return vec::add(vec::max(vec::zero(), x), log_1_plus<Isa>(exp_of_minus_magnitude<Isa>(x)));
}

}  // namespace tessera::prim
