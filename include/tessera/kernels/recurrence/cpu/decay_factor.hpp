// From log decays to the factors they stand for, on vector registers.
#pragma once

#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/math.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::recurrence {

/// exp(x) for x <= 87, exactly 0 for -inf. A state that decays slowly multiplies the error of a
/// factor by the length of its memory: near 0 this is 1 + x p(x) (a Taylor polynomial whose next
/// term is below 2^-27), which rounds once and without bias. Further off 2^x will do.
template <class Isa>
TESSERA_INLINE typename prim::simd<Isa>::reg decay_factor(typename prim::simd<Isa>::reg x) {
  using vec = prim::simd<Isa>;
  const auto low = vec::broadcast(-0.35f), high = vec::broadcast(0.35f);
  constexpr float coefficients[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f};
  const auto bounded = vec::max(low, x);  // -inf would give NaN
  auto p = vec::broadcast(1.0f / 5040);
  for (const float coefficient : coefficients) {
    p = vec::fma(bounded, p, vec::broadcast(coefficient));
  }
  const auto near = vec::fma(bounded, p, vec::broadcast(1.0f));
  const auto far = prim::exp_of<Isa>(x);
  return vec::select_below(x, low, far, vec::select_below(high, x, far, near));
}

}  // namespace tessera::kernels::recurrence
