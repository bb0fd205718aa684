// Bytes as floats, a register at a time.
#pragma once

#include <cstdint>

#include <tessera/prim/cpu/simd.hpp>

namespace tessera::prim {

/// As many bytes as a register has floats, as floats.
template <class Isa>
struct byte_reader {
  static TESSERA_INLINE void read(const std::int8_t* from, float* to) {
    for (int lane = 0; lane < simd<Isa>::width; ++lane) to[lane] = static_cast<float>(from[lane]);
  }
};
#if defined(__AVX2__)
template <>
struct byte_reader<isa::avx2> {
  static TESSERA_INLINE void read(const std::int8_t* from, float* to) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    _mm256_storeu_ps(to, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
  }
};
#endif
#if defined(__AVX512F__)
template <>
struct byte_reader<isa::avx512> {
  static TESSERA_INLINE void read(const std::int8_t* from, float* to) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    _mm512_storeu_ps(to, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)));
  }
};
template <>
struct byte_reader<isa::avx512_vnni> : byte_reader<isa::avx512> {};
template <>
struct byte_reader<isa::avx512_bf16> : byte_reader<isa::avx512> {};
#endif

/// `count` whole numbers side by side, and zeros up to a whole register.
template <class Isa>
TESSERA_INLINE void load_row(const std::int8_t* from, std::int64_t count, float* to) {
  constexpr int width = simd<Isa>::width;
  std::int64_t at = 0;
  for (; at + width <= count; at += width) byte_reader<Isa>::read(from + at, to + at);
  if (at == count) return;
  for (int lane = 0; lane < width; ++lane) {
    to[at + lane] = at + lane < count ? static_cast<float>(from[at + lane]) : 0.0f;
  }
}

}  // namespace tessera::prim
