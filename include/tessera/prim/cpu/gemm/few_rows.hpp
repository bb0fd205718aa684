// Registers whose lanes are a few rows of a few keys: what products of AMX tiles with four or eight
// query rows leave. Lane i is row i % Rows of key i / Rows.
#pragma once

#include <tessera/prim/cpu/simd.hpp>

namespace tessera::prim {

template <int Rows>
struct few_rows;

#if defined(__AVX512BF16__)
template <int Rows>
struct few_rows {
  static_assert(Rows == 4 || Rows == 8);
  using reg = __m512;

  /// In each lane what `fold` makes of all lanes of its row.
  template <class Fold>
  static TESSERA_INLINE reg fold_keys(reg x, const Fold& fold) {
    x = fold(x, _mm512_shuffle_f32x4(x, x, 0x4e));
    if constexpr (Rows == 4) x = fold(x, _mm512_shuffle_f32x4(x, x, 0xb1));
    return x;
  }
  static TESSERA_INLINE bool any_above(reg a, reg b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0;
  }

  /// Sixteen keys, key by row, turned: register r is row r, a key in a lane.
  static TESSERA_INLINE void turn(reg (&x)[Rows]) {
    if constexpr (Rows == 4) {
      turn_lanes(x);
      const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
      TESSERA_UNROLL
      for (int r = 0; r < 4; ++r) x[r] = _mm512_permutexvar_ps(order, x[r]);
    } else {
      // A register has two keys: rows 0 to 3 in its even lanes of 128 bits, 4 to 7 in the odd ones.
      reg low[4] = {x[0], x[1], x[2], x[3]}, high[4] = {x[4], x[5], x[6], x[7]};
      turn_lanes(low);
      turn_lanes(high);
      const __m512i order =
          _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 16, 24, 17, 25, 18, 26, 19, 27);
      const __m512i order_of_odd = _mm512_add_epi32(order, _mm512_set1_epi32(4));
      TESSERA_UNROLL
      for (int r = 0; r < 4; ++r) {
        x[r] = _mm512_permutex2var_ps(low[r], order, high[r]);
        x[r + 4] = _mm512_permutex2var_ps(low[r], order_of_odd, high[r]);
      }
    }
  }

  /// Rounded to bf16, in the low halves of words; the same words with halves changed about.
  static TESSERA_INLINE reg low_halves(reg x) {
    return (reg)_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(x));
  }
  static TESSERA_INLINE reg high_halves(reg low) {
    return (reg)_mm512_slli_epi32((__m512i)low, 16);
  }

  /// Sums of even and of odd columns of 32, in the order of interleaved words (bf16_words).
  static TESSERA_INLINE void interleave(reg& even, reg& odd) {
    const reg first = _mm512_unpacklo_ps(even, odd);
    odd = _mm512_unpackhi_ps(even, odd);
    even = first;
  }

 private:
  /// Four registers turned within each 128 bits.
  static TESSERA_INLINE void turn_lanes(reg (&x)[4]) {
    const __m512d a = (__m512d)_mm512_unpacklo_ps(x[0], x[1]);
    const __m512d b = (__m512d)_mm512_unpackhi_ps(x[0], x[1]);
    const __m512d c = (__m512d)_mm512_unpacklo_ps(x[2], x[3]);
    const __m512d d = (__m512d)_mm512_unpackhi_ps(x[2], x[3]);
    x[0] = (reg)_mm512_unpacklo_pd(a, c);
    x[1] = (reg)_mm512_unpackhi_pd(a, c);
    x[2] = (reg)_mm512_unpacklo_pd(b, d);
    x[3] = (reg)_mm512_unpackhi_pd(b, d);
  }
};
#endif

}  // namespace tessera::prim
