// Elementary functions on vector registers, beyond what simd.hpp has.
#pragma once

#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::prim {

/// tanh(x), within 3 ulp, saturating for large |x|; NaN stays NaN. Below 0.625 an odd polynomial
/// (coefficients of the Cephes library's tanhf), above it 1 - 2 / (exp(2 |x|) + 1).
template <class Isa>
TESSERA_INLINE typename simd<Isa>::reg tanh_of(typename simd<Isa>::reg x) {
  using vec = simd<Isa>;
  using reg = typename vec::reg;
  const reg zero = vec::zero();
  const reg magnitude = vec::select_below(x, zero, vec::sub(zero, x), x);
  // Beyond 9.1 tanh is 1 in f32; the bound keeps exp2 finite. The order of max keeps NaN.
  const reg bounded = vec::sub(zero, vec::max(vec::broadcast(-10.0f), vec::sub(zero, magnitude)));
  const reg power = vec::exp2(vec::mul(bounded, vec::broadcast(2.0f * log2_e)));
  const reg one = vec::broadcast(1.0f);
  const reg large = vec::sub(one, vec::div(vec::broadcast(2.0f), vec::add(power, one)));
  const reg signed_large = vec::select_below(x, zero, vec::sub(zero, large), large);
  const reg z = vec::mul(x, x);
  reg p = vec::fma(z, vec::broadcast(-5.70498872745e-3f), vec::broadcast(2.06390887954e-2f));
  p = vec::fma(z, p, vec::broadcast(-5.37397155531e-2f));
  p = vec::fma(z, p, vec::broadcast(1.33314422036e-1f));
  p = vec::fma(z, p, vec::broadcast(-3.33332819422e-1f));
  const reg small = vec::fma(vec::mul(p, z), x, x);
  return vec::select_below(magnitude, vec::broadcast(0.625f), small, signed_large);
}

/// exp(x) for x <= 87; exactly 0 for -inf; NaN stays NaN.
template <class Isa>
TESSERA_INLINE typename simd<Isa>::reg exp_of(typename simd<Isa>::reg x) {
  using vec = simd<Isa>;
  return vec::exp2(vec::mul(x, vec::broadcast(log2_e)));
}

/// The same of one float, by the same arithmetic.
template <class Isa>
TESSERA_INLINE float exp_of(float x) {
  using vec = simd<Isa>;
  return vec::first(exp_of<Isa>(vec::broadcast(x)));
}

}  // namespace tessera::prim
