// What a microkernel multiplies: words of 32 bits of the summed axis, one f32, two neighbouring
// bf16 or four bytes (k_pack 1, 2 or 4). All kinds share every other line of packing and
// microkernels.
#pragma once

#include <cstdint>
#include <cstring>

#include <tessera/prim/cpu/simd.hpp>

namespace tessera::prim {

/// acc += a * b, one f32 a word.
template <class Isa>
struct f32_words {
  static constexpr int k_pack = 1;  ///< elements of the summed axis in a word
  using reg = typename simd<Isa>::reg;
  static TESSERA_INLINE reg multiply_add(reg a, reg b, reg acc) {
    return simd<Isa>::fma(a, b, acc);
  }
  static TESSERA_INLINE reg multiply(reg a, reg b) { return simd<Isa>::mul(a, b); }
  /// Whether multiply_add_at is one instruction: multiply_add of the word at `a`, in all columns.
  static constexpr bool broadcasts_from_memory = simd<Isa>::width == 16;
  static TESSERA_INLINE reg multiply_add_at(const float* a, reg b, reg acc) {
    return simd<Isa>::fma_at(a, b, acc);
  }
  /// Writes a register of floats as elements [column, column + width) of a row of words.
  static TESSERA_INLINE void store_words(float* row, int column, reg x) {
    simd<Isa>::store(row + column, x);
  }
  /// Element `column` of a row of words.
  static TESSERA_INLINE float element(const float* row, int column) { return row[column]; }
  /// Where column d of a row lies among registers; see word_reader::read_interleaved.
  static constexpr int interleaved_column(int d) { return d; }
  static constexpr int interleave_period = 1;  ///< columns after which the order repeats
};

#if defined(__AVX512VNNI__)
/// acc += the four products of bytes of a word, signed ones of a and unsigned ones of b (VPDPBUSD).
/// Sums are whole numbers of 32 bits in the place of floats; they wrap around.
template <class Isa>
struct byte_words {
  static constexpr int k_pack = 4;
  static constexpr bool broadcasts_from_memory = true;
  using reg = typename simd<Isa>::reg;
  static TESSERA_INLINE reg multiply_add(reg a, reg b, reg acc) {
    // As an instruction: GCC 12 copies sums from one kind of register to the other and spills them.
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(b), "v"(a));
    return acc;
  }
  static TESSERA_INLINE reg multiply(reg a, reg b) { return multiply_add(a, b, simd<Isa>::zero()); }
  static TESSERA_INLINE reg multiply_add_at(const float* a, reg b, reg acc) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(b), "m"(*a));
    return acc;
  }
  /// Bytes of 128: times a they are what `raised_byte` adds to products.
  static TESSERA_INLINE reg most_raised() { return _mm512_castsi512_ps(_mm512_set1_epi8(-128)); }
  /// The sum of all sums of a register.
  static TESSERA_INLINE std::int32_t total(reg acc) {
    return _mm512_reduce_add_epi32(_mm512_castps_si512(acc));
  }
  /// Sums of the same words, added.
  static TESSERA_INLINE reg add(reg a, reg b) {
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
  }
  /// A sum as a float.
  static TESSERA_INLINE reg float_of_sum(reg acc) {
    return _mm512_cvtepi32_ps(_mm512_castps_si512(acc));
  }
};
#endif

#if defined(__AVX512BF16__)
/// acc += a.low * b.low + a.high * b.high, two bf16 a word (VDPBF16PS).
template <class Isa>
struct bf16_words {
  static constexpr int k_pack = 2;
  static constexpr bool broadcasts_from_memory = false;
  using reg = typename simd<Isa>::reg;
  static TESSERA_INLINE reg multiply_add(reg a, reg b, reg acc) {
    return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
  }
  static TESSERA_INLINE reg multiply(reg a, reg b) { return multiply_add(a, b, simd<Isa>::zero()); }
  static TESSERA_INLINE void store_words(float* row, int column, reg x) {
    const __m256bh narrow = _mm512_cvtneps_pbh(x);
    std::memcpy(row + column / 2, &narrow, sizeof narrow);
  }
  /// Two registers as the next elements of a row of words, `low` first.
  static TESSERA_INLINE void store_two(float* row, reg low, reg high) {
    simd<Isa>::store(row, (reg)_mm512_cvtne2ps_pbh(high, low));
  }
  /// Words of a lane each: rounded, `low` in the low halves and `high` in the high ones.
  static TESSERA_INLINE reg pairs(reg low, reg high) {
    const __m512i apart = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, apart));
  }
  static TESSERA_INLINE float element(const float* row, int column) {
    bf16 value;
    std::memcpy(&value, reinterpret_cast<const char*>(row) + 2 * column, sizeof value);
    return static_cast<float>(value);
  }
  /// Two rows of bf16 interleave within lanes of 128 bits: the first four of eight columns come to
  /// one register, the others to the next.
  static constexpr int interleaved_column(int d) {
    const int column = d % interleave_period;
    const int in_lane = column % 8;
    return d - column + (in_lane < 4 ? 0 : 16) + column / 8 * 4 + in_lane % 4;
  }
  static constexpr int interleave_period = 32;
};
#endif

/// Words of the summed axis for `elements` elements.
template <class Words>
constexpr int words_for(int elements) {
  return (elements + Words::k_pack - 1) / Words::k_pack;
}

template <backend Target>
struct words_of {
  using type = f32_words<typename isa::of<Target>::type>;
};
#if defined(__AVX512BF16__)
template <>
struct words_of<backend::cpu_avx512_bf16> {
  using type = bf16_words<isa::avx512_bf16>;
};
template <>
struct words_of<backend::cpu_amx_bf16> : words_of<backend::cpu_avx512_bf16> {};
#endif

/// What products of i8 with scales are made of, where a back end has instructions for them.
template <backend Target>
struct byte_words_of : words_of<Target> {};
#if defined(__AVX512VNNI__)
template <>
struct byte_words_of<backend::cpu_avx512_vnni> {
  using type = byte_words<isa::avx512_vnni>;
};
#endif

}  // namespace tessera::prim
