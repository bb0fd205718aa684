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

  /// sums[i] = codes times the elements at first + i stride, by lane: of each register of codes
  /// those of its four registers of places. Those of a register are added up by themselves, so that
  /// few sums need not wait for each other; the order is the same for any number of them.
  template <int Registers, int Sums>
  static TESSERA_INLINE void products(reg table, const reg (&codes)[Registers], const bf16* first,
                                      std::int64_t stride, __m512 (&sums)[Sums]) {
    const bf16* rows[Sums];
    TESSERA_UNROLL
    for (int i = 0; i < Sums; ++i) rows[i] = first + i * stride;
    // Chains side by side: of few sums those of all registers, of many those of one.
    constexpr int beside = Sums >= 4 ? 1 : Registers;
    TESSERA_UNROLL
    for (int from = 0; from < Registers; from += beside) {
      __m512 own[beside][Sums];
      TESSERA_UNROLL
      for (int j = 0; j < codes_of_word; ++j) {
        TESSERA_UNROLL
        for (int r = 0; r < beside; ++r) {
          const reg word = codes[from + r];
          const reg shifted = j == 0 ? word : _mm512_srli_epi16(word, static_cast<unsigned>(4 * j));
          const reg weights = _mm512_permutexvar_epi16(shifted, table);
          TESSERA_UNROLL
          for (int i = 0; i < Sums; ++i) {
            const bf16* const x = rows[i] + ((from + r) * codes_of_word + j) * places;
            const __m512 before = j == 0 ? _mm512_setzero_ps() : own[r][i];
            own[r][i] =
                _mm512_dpbf16_ps(before, (__m512bh)weights, (__m512bh)_mm512_loadu_si512(x));
          }
        }
      }
      TESSERA_UNROLL
      for (int r = 0; r < beside; ++r) {
        TESSERA_UNROLL
        for (int i = 0; i < Sums; ++i) {
          sums[i] = from + r == 0 ? own[r][i] : _mm512_add_ps(sums[i], own[r][i]);
        }
      }
    }
  }
};
#endif

}  // namespace tessera::prim
