// Codes of four bits as bf16, an entry of a table each, and their products with rows of bf16
// (VDPBF16PS). Codes 4 i + j of a register come to place i of its register j, for j below 4: two
// neighbouring places are a lane's.
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

template <class Isa>
struct code_pairs;

#if defined(__AVX512BF16__)
template <>
struct code_pairs<isa::avx512_bf16> {
  using reg = __m512i;
  static constexpr int places = 32;        ///< elements of a register
  static constexpr int codes_of_word = 4;  ///< of 16 bits

  /// Twice the same 16 entries: a bit of the next code is part of an index.
  static TESSERA_INLINE reg table_of(const bf16* entries) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(entries));
    return _mm512_inserti64x4(_mm512_castsi256_si512(half), half, 1);
  }

  /// sums[r][i] = codes[r] times the elements at first + i stride, by lane. The elements are loaded
  /// once for all registers of codes.
  template <int Registers, int Sums>
  static TESSERA_INLINE void products(reg table, const reg (&codes)[Registers], const bf16* first,
                                      std::int64_t stride, __m512 (&sums)[Registers][Sums]) {
    const bf16* rows[Sums];
    TESSERA_UNROLL
    for (int i = 0; i < Sums; ++i) rows[i] = first + i * stride;
    TESSERA_UNROLL
    for (int j = 0; j < codes_of_word; ++j) {
      reg weights[Registers];
      TESSERA_UNROLL
      for (int r = 0; r < Registers; ++r) {
        const reg shifted =
            j == 0 ? codes[r] : _mm512_srli_epi16(codes[r], static_cast<unsigned>(4 * j));
        weights[r] = _mm512_permutexvar_epi16(shifted, table);
      }
      TESSERA_UNROLL
      for (int i = 0; i < Sums; ++i) {
        const reg x = _mm512_loadu_si512(rows[i] + j * places);
        TESSERA_UNROLL
        for (int r = 0; r < Registers; ++r) {
          const __m512 before = j == 0 ? _mm512_setzero_ps() : sums[r][i];
          sums[r][i] = _mm512_dpbf16_ps(before, (__m512bh)weights[r], (__m512bh)x);
        }
      }
    }
  }
};
#endif

}  // namespace tessera::prim
