// Decays and activations on vector registers. A decay of a recurrence is applied once a token, so
// that its relative error is what a state has after 1 / (1 - decay) tokens times as much of: near 1
// it is rounded correctly but for the last bit.
#pragma once

#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cpu/log.hpp>
#include <tessera/prim/cpu/math.hpp>
#include <tessera/prim/cpu/power_of_two.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::prim {

/// ln 2 is their sum; whole numbers below 2^9 times ln2_high are exact.
inline constexpr float ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;

/// x becomes exp(x): exactly 1 at 0, within an ulp for |x| < 1/4, else within 2 + |x| / 16; what is
/// above 88 counts as 88; below 2^-126 subnormal or 0; exactly 0 for -inf; NaN stays NaN. Several
/// registers are as many chains of operations side by side.
template <class Isa, int Count>
TESSERA_INLINE void to_decays(typename simd<Isa>::reg (&x)[Count]) {
  using vec = simd<Isa>;
  using reg = typename vec::reg;
  const auto each = [](const auto& step) {
    TESSERA_UNROLL
    for (int i = 0; i < Count; ++i) step(i);
  };
  const reg lowest = vec::broadcast(-105.0f), highest = vec::broadcast(88.0f);
  const reg no_fractions = vec::broadcast(0x1.8p23f);  // numbers of this size have none
  // x = whole ln 2 + rest, without rounding where |x| < ln 2 / 2. The order of max keeps NaN.
  reg whole[Count], p[Count];
  each([&](int i) { x[i] = vec::max(lowest, x[i]); });
  each([&](int i) { x[i] = vec::select_below(highest, x[i], highest, x[i]); });
  each([&](int i) { whole[i] = vec::fma(x[i], vec::broadcast(log2_e), no_fractions); });
  each([&](int i) { whole[i] = vec::sub(whole[i], no_fractions); });
  each([&](int i) { x[i] = vec::fma(whole[i], vec::broadcast(-ln2_high), x[i]); });
  each([&](int i) { x[i] = vec::fma(whole[i], vec::broadcast(-ln2_low), x[i]); });
  // 1 + x + x^2 / 2 + ..., the rest of it minimax: off by 5e-9 for |x| <= ln 2 / 2.
  each([&](int i) {
    p[i] = vec::fma(x[i], vec::broadcast(0x1.6db42ap-10f), vec::broadcast(0x1.123b56p-7f));
  });
  for (const float term : {0x1.55545ep-5f, 0x1.55548ep-3f, 0.5f, 1.0f, 1.0f}) {
    each([&](int i) { p[i] = vec::fma(x[i], p[i], vec::broadcast(term)); });
  }
  each([&](int i) { x[i] = times_power_of_two<Isa>(p[i], whole[i]); });
}
template <class Isa>
TESSERA_INLINE typename simd<Isa>::reg decay_of(typename simd<Isa>::reg x) {
  typename simd<Isa>::reg one[1] = {x};
  to_decays<Isa>(one);
  return one[0];
}

/// The same of one float, by the same arithmetic.
template <class Isa>
TESSERA_INLINE float decay_of(float x) {
  using vec = simd<Isa>;
  return vec::first(decay_of<Isa>(vec::broadcast(x)));
}

/// exp(x) within two ulps, for rates and steps, whose sums and products are exponents: an ulp of a
/// rate of 60 is as much as 4e-6 of a power. What is above 88 counts as 88; below 2^-126 subnormal
/// or 0; exactly 0 below -100; NaN stays NaN.
template <class Isa>
TESSERA_INLINE typename simd<Isa>::reg precise_exp_of(typename simd<Isa>::reg x) {
  using vec = simd<Isa>;
  using reg = typename vec::reg;
  const reg zero = vec::zero(), lowest = vec::broadcast(-100.0f);
  // The order of max keeps NaN.
  const reg bounded =
      vec::sub(zero, vec::max(vec::broadcast(-88.0f), vec::sub(zero, vec::max(lowest, x))));
  // bounded = whole ln 2 + rest. Numbers of this size have no fractions.
  const reg no_fractions = vec::broadcast(0x1.8p23f);
  const reg whole = vec::sub(vec::fma(bounded, vec::broadcast(log2_e), no_fractions), no_fractions);
  const reg negative = vec::sub(zero, whole);
  const reg rest = vec::fma(negative, vec::broadcast(ln2_low),
                            vec::fma(negative, vec::broadcast(ln2_high), bounded));
  // The series of exp, to rest^7 / 7!: what is left out is below 6e-9.
  reg p = vec::broadcast(1.0f / 5040.0f);
  for (const float term :
       {1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f, 1.0f, 1.0f}) {
    p = vec::fma(rest, p, vec::broadcast(term));
  }
  return vec::select_below(x, lowest, zero, times_power_of_two<Isa>(p, whole));
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

/// log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)), within four ulps: a step of a recurrence.
template <class Isa>
TESSERA_INLINE typename simd<Isa>::reg softplus_of(typename simd<Isa>::reg x) {
  using vec = simd<Isa>;
  const auto minus_magnitude = vec::select_below(x, vec::zero(), x, vec::sub(vec::zero(), x));
  return vec::add(vec::max(vec::zero(), x), log_1_plus<Isa>(precise_exp_of<Isa>(minus_magnitude)));
}

}  // namespace tessera::prim
