// Powers of two on vector registers: the other half of an exponential whose argument was split
// into a whole number and a rest.
#pragma once

#include <bit>
#include <cstdint>

#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/simd.hpp>

// GCC 12 warns about the deliberately undefined operands inside its own intrinsics (GCC bug
// 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace tessera::prim {

/// x 2^n for whole numbers n <= 127 and x in [0.5, 2]; below 2^-126 subnormal or 0, and 0 for
/// n <= -152. A NaN of x stays NaN, whatever n is.
template <class Isa>
TESSERA_INLINE typename simd<Isa>::reg times_power_of_two(typename simd<Isa>::reg x,
                                                          typename simd<Isa>::reg n) {
  using vec = simd<Isa>;
#if defined(__AVX512F__)
  if constexpr (vec::width == 16) return _mm512_scalef_ps(x, n);
#endif
#if defined(__AVX2__)
  if constexpr (vec::width == 8) {
    // An exponent of 0 stands for the number 0.
    const __m256i exponent = _mm256_cvtps_epi32(vec::max(vec::broadcast(-127.0f), n));
    const __m256i bits = _mm256_slli_epi32(_mm256_add_epi32(exponent, _mm256_set1_epi32(127)), 23);
    return vec::mul(x, _mm256_castsi256_ps(bits));
  }
#endif
  if constexpr (vec::width == 4) {
    typename vec::reg result = x;
    for (int i = 0; i < vec::width; ++i) {
      // Also of a NaN, which no integer stands for.
      const float power = n.lane[i] > -127.0f ? n.lane[i] : -127.0f;
      result.lane[i] *= std::bit_cast<float>((static_cast<std::int32_t>(power) + 127) << 23);
    }
    return result;
  }
}

}  // namespace tessera::prim

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
