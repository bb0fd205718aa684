// Codes of four bits as entries of a table, a block at a time: as many bytes as a register has
// floats, whose lower halves are the codes with even numbers and whose upper halves the others. A
// row in paired order has the even ones of each block, then the odd ones.
//
// | function | meaning |
// |---|---|
// | table_of(entries, less, by, plus) | the table of (entry - less) by + plus, rounded each time |
// | look_up(table, codes, even, odd) | entries of a block that has one table |
// | look_up(first, second, codes, ...) | of one whose halves have a table each |
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/prim/cpu/simd.hpp>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace tessera::prim {

/// How a table entry becomes a weight: (entry - zero) scale, or entry scale + zero with one
/// rounding.
struct nibble_scale {
  float scale = 1;
  float zero = 0;
  bool biased = false;
};
/// Entries of a table as weights.
template <class Vec>
TESSERA_INLINE typename Vec::reg scaled_entries(typename Vec::reg entries, const nibble_scale& by) {
  const auto s = Vec::broadcast(by.scale), z = Vec::broadcast(by.zero);
  return by.biased ? Vec::fma(entries, s, z) : Vec::mul(Vec::sub(entries, z), s);
}

template <class Isa>
struct nibble_lanes {
  using vec = simd<Isa>;
  using reg = typename vec::reg;
  static constexpr int block = 2 * vec::width;  ///< codes

  struct table {
    float at[16];
  };
  static TESSERA_INLINE table table_of(const float* entries, const nibble_scale& by) {
    table to;
    for (int i = 0; i < 16; i += vec::width) {
      vec::store(to.at + i, scaled_entries<vec>(vec::load(entries + i), by));
    }
    return to;
  }
  static TESSERA_INLINE void look_up(const table& first, const table& second,
                                     const std::byte* codes, reg& even, reg& odd) {
    float pairs[2][vec::width];
    for (int i = 0; i < vec::width; ++i) {
      const auto byte = std::to_integer<unsigned>(codes[i]);
      const float* const at = i < vec::width / 2 ? first.at : second.at;
      pairs[0][i] = at[byte & 15u];
      pairs[1][i] = at[byte >> 4];
    }
    even = vec::load(pairs[0]);
    odd = vec::load(pairs[1]);
  }
  static TESSERA_INLINE void look_up(const table& all, const std::byte* codes, reg& even,
                                     reg& odd) {
    look_up(all, all, codes, even, odd);
  }
};

#if defined(__AVX2__)
template <>
struct nibble_lanes<isa::avx2> {
  using vec = simd<isa::avx2>;
  using reg = vec::reg;
  static constexpr int block = 16;

  struct table {
    reg low, high;
  };
  static TESSERA_INLINE table table_of(const float* entries, const nibble_scale& by) {
    return {scaled_entries<vec>(vec::load(entries), by),
            scaled_entries<vec>(vec::load(entries + 8), by)};
  }
  static TESSERA_INLINE void look_up(const table& all, const std::byte* codes, reg& even,
                                     reg& odd) {
    const __m256i bytes = load_bytes(codes);
    even = entries_of(all, bytes);
    odd = entries_of(all, _mm256_srli_epi32(bytes, 4));
  }
  static TESSERA_INLINE void look_up(const table& first, const table& second,
                                     const std::byte* codes, reg& even, reg& odd) {
    const __m256i bytes = load_bytes(codes), upper = _mm256_srli_epi32(bytes, 4);
    even = _mm256_blend_ps(entries_of(first, bytes), entries_of(second, bytes), 0xf0);
    odd = _mm256_blend_ps(entries_of(first, upper), entries_of(second, upper), 0xf0);
  }

 private:
  static TESSERA_INLINE __m256i load_bytes(const std::byte* codes) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
  }
  static TESSERA_INLINE reg entries_of(const table& all, __m256i code) {
    const reg is_high = _mm256_castsi256_ps(_mm256_slli_epi32(code, 28));
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(all.low, code),
                            _mm256_permutevar8x32_ps(all.high, code), is_high);
  }
};
#endif

#if defined(__AVX512F__)
template <>
struct nibble_lanes<isa::avx512> {
  using vec = simd<isa::avx512>;
  using reg = vec::reg;
  static constexpr int block = 32;

  struct table {
    reg all;
  };
  static TESSERA_INLINE table table_of(const float* entries, const nibble_scale& by) {
    return {scaled_entries<vec>(vec::load(entries), by)};
  }
  static TESSERA_INLINE void look_up(const table& of, const std::byte* codes, reg& even, reg& odd) {
    const __m512i bytes = load_bytes(codes);
    even = _mm512_permutexvar_ps(bytes, of.all);  // by the lowest four bits
    odd = _mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), of.all);
  }
  static TESSERA_INLINE void look_up(const table& first, const table& second,
                                     const std::byte* codes, reg& even, reg& odd) {
    const __m512i bytes = load_bytes(codes);
    const __m512i upper_half = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi32(16), 1);
    const __m512i low = _mm512_and_si512(bytes, _mm512_set1_epi32(15));
    const __m512i high = _mm512_srli_epi32(bytes, 4);
    even = _mm512_permutex2var_ps(first.all, _mm512_or_si512(low, upper_half), second.all);
    odd = _mm512_permutex2var_ps(first.all, _mm512_or_si512(high, upper_half), second.all);
  }

 private:
  static TESSERA_INLINE __m512i load_bytes(const std::byte* codes) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  }
};

template <>
struct nibble_lanes<isa::avx512_vnni> : nibble_lanes<isa::avx512> {};
template <>
struct nibble_lanes<isa::avx512_bf16> : nibble_lanes<isa::avx512> {};
#endif

}  // namespace tessera::prim
