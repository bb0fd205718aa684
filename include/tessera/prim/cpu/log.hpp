// log(1 + u) on vector registers: what a sum of exponentials adds to the larger exponent.
#pragma once

#include <tessera/prim/cpu/simd.hpp>

namespace tessera::prim {

/// log(1 + u) for u in [0, 1]: 2 artanh(s) with s = u / (2 + u) <= 1/3, whose series to s^15 / 15
/// leaves out less than 1e-8 of it.
template <class Isa>
TESSERA_INLINE typename simd<Isa>::reg log_1_plus(typename simd<Isa>::reg u) {
  using vec = simd<Isa>;
  using reg = typename vec::reg;
  const reg s = vec::div(u, vec::add(u, vec::broadcast(2.0f)));
  const reg z = vec::mul(s, s);
  reg p = vec::fma(z, vec::broadcast(1.0f / 15.0f), vec::broadcast(1.0f / 13.0f));
  p = vec::fma(z, p, vec::broadcast(1.0f / 11.0f));
  p = vec::fma(z, p, vec::broadcast(1.0f / 9.0f));
  p = vec::fma(z, p, vec::broadcast(1.0f / 7.0f));
  p = vec::fma(z, p, vec::broadcast(1.0f / 5.0f));
  p = vec::fma(z, p, vec::broadcast(1.0f / 3.0f));
  const reg twice = vec::add(s, s);
  return vec::fma(vec::mul(twice, z), p, twice);
}

}  // namespace tessera::prim
