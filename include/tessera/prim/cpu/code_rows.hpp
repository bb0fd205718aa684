// Rows of elements of 8 bits as rows of f32, f16 or bf16, which have every number of f8_e4m3,
// f8_e5m2 and i8: nothing is rounded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <tessera/prim/common/element_cast.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/simd.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/float8.hpp>

namespace tessera::prim {

/// A row is widened in blocks of so many elements, whatever the instruction set: rows of the result
/// have room for whole ones.
inline constexpr int code_block = 32;

/// `code_block` elements.
template <class Isa>
struct code_widener {
  template <class Code, class Element>
  static TESSERA_INLINE void widen(const Code* from, Element* to) {
    for (int i = 0; i < code_block; ++i) to[i] = Element(float_of(from[i]));
  }
};

#if defined(__AVX2__)
template <>
struct code_widener<isa::avx2> {
  template <class Code, class Element>
  static TESSERA_INLINE void widen(const Code* from, Element* to) {
    for (int i = 0; i < code_block; i += 8) {
      std::int64_t codes;
      std::memcpy(&codes, from + i, sizeof codes);
      const __m256 x = floats(_mm_cvtsi64_si128(codes), Code{});
      if constexpr (std::is_same_v<Element, bf16>) {
        const __m256i halves = _mm256_srli_epi32(_mm256_castps_si256(x), 16);
        _mm_storeu_si128(
            reinterpret_cast<__m128i*>(to + i),
            _mm_packus_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1)));
      } else {
        simd<isa::avx2>::store_as(to + i, x);
      }
    }
  }

 private:
  static TESSERA_INLINE __m256 floats(__m128i codes, std::int8_t) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
  }
  /// The upper byte of a binary16.
  static TESSERA_INLINE __m256 floats(__m128i codes, f8_e5m2) {
    return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(codes), 8));
  }
  /// Moved to the place of a binary16's exponent and mantissa it is a number 2^8 times smaller.
  static TESSERA_INLINE __m256 floats(__m128i codes, f8_e4m3) {
    const __m128i moved = _mm_slli_epi16(_mm_cvtepi8_epi16(codes), 7);
    const __m128i half = _mm_and_si128(moved, _mm_set1_epi16(static_cast<short>(0xbf80)));
    const __m256 x = _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.0f));
    const __m256 size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
    return _mm256_or_ps(x, _mm256_cmp_ps(size, _mm256_set1_ps(480.0f), _CMP_EQ_OQ));
  }
};
#endif

#if defined(__AVX512F__)
/// The elements of the codes 0 to 127: those of the other codes have the other sign.
template <class Code, class Element>
inline constexpr auto positive_codes = [] {
  std::array<std::uint16_t, 128> bits{};
  for (std::size_t code = 0; code < bits.size(); ++code) {
    Code element;
    element.bits = static_cast<std::uint8_t>(code);
    bits[code] = Element(float_of(element)).bits;
  }
  return bits;
}();

template <>
struct code_widener<isa::avx512> {
  template <class Code, class Element>
  static TESSERA_INLINE void widen(const Code* from, Element* to) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    if constexpr (std::is_same_v<Code, std::int8_t>) {
      store(to, floats(_mm256_castsi256_si128(codes)), floats(_mm256_extracti128_si256(codes, 1)));
    } else if constexpr (std::is_same_v<Element, float>) {
      const __m512i words = looked_up<Code, bf16>(codes);
      store(to, from_bf16(_mm512_castsi512_si256(words)),
            from_bf16(_mm512_extracti64x4_epi64(words, 1)));
    } else {
      _mm512_storeu_si512(to, looked_up<Code, Element>(codes));
    }
  }

 private:
  template <class Code, class Element>
  static TESSERA_INLINE __m512i looked_up(__m256i codes) {
    const auto part = [](int i) {
      return _mm512_loadu_si512(positive_codes<Code, Element>.data() + 32 * i);
    };
    const __m512i index = _mm512_cvtepu8_epi16(codes);
    const __mmask32 upper = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64));
    const __m512i low = _mm512_permutex2var_epi16(part(0), index, part(1));
    const __m512i high = _mm512_permutex2var_epi16(part(2), index, part(3));
    const __m512i size = _mm512_mask_mov_epi16(low, upper, high);
    // a | b & c
    return _mm512_ternarylogic_epi32(size, _mm512_slli_epi16(index, 8),
                                     _mm512_set1_epi16(static_cast<short>(0x8000)), 0xf8);
  }
  static TESSERA_INLINE __m512 floats(__m128i codes) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
  }
  static TESSERA_INLINE __m512 from_bf16(__m256i halves) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  static TESSERA_INLINE void store(float* to, __m512 low, __m512 high) {
    _mm512_storeu_ps(to, low);
    _mm512_storeu_ps(to + 16, high);
  }
  static TESSERA_INLINE void store(f16* to, __m512 low, __m512 high) {
    simd<isa::avx512>::store_as(to, low);
    simd<isa::avx512>::store_as(to + 16, high);
  }
  /// The lower halves of these numbers are 0.
  static TESSERA_INLINE void store(bf16* to, __m512 low, __m512 high) {
    const __m512i below = _mm512_srli_epi32(_mm512_castps_si512(low), 16);
    const __m512i above = _mm512_srli_epi32(_mm512_castps_si512(high), 16);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(below));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 16), _mm512_cvtepi32_epi16(above));
  }
};
template <>
struct code_widener<isa::avx512_vnni> : code_widener<isa::avx512> {};
template <>
struct code_widener<isa::avx512_bf16> : code_widener<isa::avx512> {};
#endif

/// `count` elements side by side; `to` has room for whole blocks, and anything behind them.
template <class Isa, class Code, class Element>
TESSERA_INLINE void widen_row(const Code* from, int count, Element* to) {
  int at = 0;
  for (; at + code_block <= count; at += code_block) {
    code_widener<Isa>::widen(from + at, to + at);
  }
  if (at == count) return;
  Code last[code_block]{};
  std::memcpy(last, from + at, static_cast<std::size_t>(count - at));
  code_widener<Isa>::widen(last, to + at);
}

/// `count` elements times a factor, rounded; a multiple of `code_block`.
template <class Isa, class Element>
TESSERA_INLINE void scale_row(Element* row, int count, float factor) {
  using vec = simd<Isa>;
  static_assert(code_block % vec::width == 0);
  const auto by = vec::broadcast(factor);
  for (int at = 0; at < count; at += vec::width) {
    vec::store_as(row + at, vec::mul(vec::load_as(row + at), by));
  }
}

/// The nearest number that a type of 8 bits has.
template <class Isa>
TESSERA_INLINE float nearest_of_codes(dtype type, float x) {
  if (type == dtype::i8) return float_of(nearest<std::int8_t>(x));
  if (type == dtype::f8_e5m2) return float_of(nearest<f8_e5m2>(x));
  return float_of(nearest<f8_e4m3>(x));
}

}  // namespace tessera::prim
