// The inner product step of the register tiles. Operands are registers of 32-bit words: one f32, or
// two neighbouring bf16 of the summed axis. Both kinds share every other line of the kernels.
#pragma once

#include <cstring>

#include <tessera/prim/cpu/simd.hpp>

namespace tessera::prim {

/// acc += a * b, one f32 per word.
template <class Isa>
struct f32_words {
  static constexpr int per_word = 1;
  using reg = typename simd<Isa>::reg;
  static TESSERA_INLINE reg multiply_add(reg a, reg b, reg acc) {
    return simd<Isa>::fma(a, b, acc);
  }
  static TESSERA_INLINE reg multiply(reg a, reg b) { return simd<Isa>::mul(a, b); }
  /// Writes one register of weights as words at column `column` of a row of weights.
  static TESSERA_INLINE void store_weights(float* row, int column, reg x) {
    simd<Isa>::store(row + column, x);
  }
  static TESSERA_INLINE float weight(const float* row, int column) { return row[column]; }
  /// Where column d of the values lies among the sums; see word_reader::read_value_words.
  static constexpr int value_column(int d) { return d; }
  static constexpr int value_period = 1;  ///< columns after which the order repeats
};

#if defined(__AVX512BF16__)
/// acc += a.low * b.low + a.high * b.high, two bf16 per word (VDPBF16PS).
template <class Isa>
struct bf16_words {
  static constexpr int per_word = 2;
  using reg = typename simd<Isa>::reg;
  static TESSERA_INLINE reg multiply_add(reg a, reg b, reg acc) {
    return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
  }
  static TESSERA_INLINE reg multiply(reg a, reg b) { return multiply_add(a, b, simd<Isa>::zero()); }
  static TESSERA_INLINE void store_weights(float* row, int column, reg x) {
    const __m256bh narrow = _mm512_cvtneps_pbh(x);
    std::memcpy(row + column / 2, &narrow, sizeof narrow);
  }
  static TESSERA_INLINE float weight(const float* row, int column) {
    bf16 value;
    std::memcpy(&value, reinterpret_cast<const char*>(row) + 2 * column, sizeof value);
    return static_cast<float>(value);
  }
  /// Two rows of bf16 interleave within lanes of 128 bits: the first four of eight columns come to
  /// one register, the others to the next.
  static constexpr int value_column(int d) {
    const int column = d % value_period;
    const int in_lane = column % 8;
    return d - column + (in_lane < 4 ? 0 : 16) + column / 8 * 4 + in_lane % 4;
  }
  static constexpr int value_period = 32;
};
#endif

template <backend Target>
struct words_of {
  using type = f32_words<typename isa::of<Target>::type>;
};
#if defined(__AVX512BF16__)
template <>
struct words_of<backend::cpu_avx512_bf16> {
  using type = bf16_words<isa::avx512_bf16>;
};
#endif

}  // namespace tessera::prim
