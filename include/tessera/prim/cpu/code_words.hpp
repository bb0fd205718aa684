// Codes of four bits as bf16, an entry of a table each: 32 codes, 16 bytes, become the words of a
// row of a tile. Code 4 i + j comes to place 8 j + i, for j below 4.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/spec/dtype.hpp>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace tessera::prim {

/// The code that comes to a place.
constexpr int code_at_place(int place) noexcept {
  return 4 * (place % 8) + place / 8;
}

template <class Isa>
struct code_words;

#if defined(__AVX512BF16__)
template <>
struct code_words<isa::avx512_bf16> {
  static constexpr int block = 32;  ///< codes
  struct table {
    __m512i entries;  ///< twice the same: a bit of the next code is part of an index
    __m512i shifts;
  };
  static TESSERA_INLINE table table_of(const bf16* entries) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(entries));
    constexpr std::int64_t four = 0x0004000400040004;
    return {_mm512_inserti64x4(_mm512_castsi256_si512(half), half, 1),
            _mm512_setr_epi64(0, 0, four, four, 2 * four, 2 * four, 3 * four, 3 * four)};
  }
  static TESSERA_INLINE void look_up(const table& of, const std::byte* codes, bf16* to) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
    const __m512i shifted = _mm512_srlv_epi16(_mm512_broadcast_i32x4(bytes), of.shifts);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(shifted, of.entries));
  }
};
#endif

}  // namespace tessera::prim
