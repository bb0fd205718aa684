// Reads rows of f32, f16, bf16 or bytes as registers of words.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/prim/cpu/gemm/words.hpp>

namespace tessera::prim {

/// Reads and widens rows into words.
template <class Words>
struct word_reader;

template <class Isa>
struct word_reader<f32_words<Isa>> {
  using vec = simd<Isa>;
  using reg = typename vec::reg;
  static constexpr int elements = vec::width;  ///< of the summed axis in one register

  template <class Element>
  static TESSERA_INLINE reg read(const Element* p) {
    return vec::load_as(p);
  }
  /// The first `count` elements; zeros behind them.
  template <class Element>
  static TESSERA_INLINE reg read(const Element* p, int count) {
    return count >= elements ? vec::load_as(p) : vec::load_as_n(p, count);
  }
  /// Words of `count` columns of one row, null for zeros: a row of B.
  template <class Element>
  static TESSERA_INLINE reg read_rows(const Element* const (&row)[1], int count) {
    if (row[0] == nullptr) return vec::zero();
    return read(row[0], count);
  }
  /// The same of many columns, in the cheapest order: column Words::interleaved_column(d) of the
  /// registers is column d. Row 0 is not null.
  template <int Vectors, class Element>
  static TESSERA_INLINE void read_interleaved(const Element* const (&row)[1], int count,
                                              reg (&words)[Vectors]) {
    TESSERA_UNROLL
    for (int v = 0; v < Vectors; ++v) {
      const int left = count - v * vec::width;
      words[v] = read(row[0] + v * vec::width, left < 0 ? 0 : left);
    }
  }
  /// 0 or -0 where every value is finite, else NaN. The bits of NaN survive an OR, which unlike a
  /// sum costs one cycle.
  static TESSERA_INLINE reg accumulate_nonfinite(reg x, reg acc) {
    return vec::bit_or(acc, vec::mul(x, vec::zero()));
  }
};

/// An i8 that is read as the number 128 above it, without a sign.
struct raised_byte {
  std::int8_t value;
};

#if defined(__AVX512VNNI__)
template <class Isa>
struct word_reader<byte_words<Isa>> {
  using reg = typename simd<Isa>::reg;
  static constexpr int elements = 4 * simd<Isa>::width;

  /// The first `count` elements; zeros behind them, or their like: the other operand has zeros
  /// there.
  template <class Element>
  static TESSERA_INLINE reg read(const Element* p, int count = elements) {
    const __mmask64 lanes = count >= elements ? ~__mmask64{0} : (__mmask64{1} << count) - 1u;
    const __m512i bytes = _mm512_maskz_loadu_epi8(lanes, p);
    if constexpr (std::is_same_v<Element, raised_byte>) {
      return _mm512_castsi512_ps(_mm512_xor_si512(bytes, _mm512_set1_epi8(-128)));
    } else {
      return _mm512_castsi512_ps(bytes);
    }
  }
};
#endif

#if defined(__AVX512BF16__)
template <class Isa>
struct word_reader<bf16_words<Isa>> {
  using vec = simd<Isa>;
  using reg = typename vec::reg;
  static constexpr int elements = 2 * vec::width;

  static TESSERA_INLINE reg read(const bf16* p) {
    return _mm512_castsi512_ps(_mm512_loadu_si512(p));
  }
  static TESSERA_INLINE reg read(const bf16* p, int count) {
    const __mmask32 lanes = count >= elements ? ~__mmask32{0} : (__mmask32{1} << count) - 1u;
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(lanes, p));
  }
  /// Words of `count` columns: row[0] in the low halves, row[1] in the high ones.
  static TESSERA_INLINE reg read_rows(const bf16* const (&row)[2], int count) {
    const auto lanes = static_cast<__mmask16>(count >= vec::width ? 0xffffu : (1u << count) - 1u);
    const auto load = [lanes](const bf16* p) {
      return p == nullptr ? _mm512_setzero_si512()
                          : _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, p));
    };
    return _mm512_castsi512_ps(_mm512_or_si512(load(row[0]), _mm512_slli_epi32(load(row[1]), 16)));
  }
  template <int Vectors>
  static TESSERA_INLINE void read_interleaved(const bf16* const (&row)[2], int count,
                                              reg (&words)[Vectors]) {
    static_assert(Vectors % 2 == 0);
    TESSERA_UNROLL
    for (int v = 0; v < Vectors; v += 2) {
      const int column = v * vec::width;
      const int left = count < column ? 0 : count - column;
      const __m512i even = _mm512_castps_si512(read(row[0] + column, left));
      const __m512i odd = row[1] == nullptr ? _mm512_setzero_si512()
                                            : _mm512_castps_si512(read(row[1] + column, left));
      words[v] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(even, odd));
      words[v + 1] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(even, odd));
    }
  }
  static TESSERA_INLINE reg accumulate_nonfinite(reg x, reg acc) {
    const __m512i bits = _mm512_castps_si512(x);
    const reg low = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
    const reg high = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(-65536)));
    return vec::bit_or(acc, vec::bit_or(vec::mul(low, vec::zero()), vec::mul(high, vec::zero())));
  }
};
#endif

}  // namespace tessera::prim
