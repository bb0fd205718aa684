// Codes of 1 to 8 bits out of a stream of bits, and what they stand for: 32 codes at a time, which
// begin on a word. Code i of a stream has bits [i bits, (i + 1) bits), counted from the lowest bit
// of the first word.
//
// | function | meaning |
// |---|---|
// | unpack(words, count, bits, codes) | 32 codes out of `count` words, at most 8; behind them 0 |
// | look_up(table, codes, values) | the entries of a table of 16 for 32 codes |
#pragma once

#include <cstdint>

#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/isa.hpp>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace tessera::prim {

/// Codes of a block; their words are as many as a code has bits.
inline constexpr int codes_of_block = 32;

template <class Isa>
struct code_lanes;

template <>
struct code_lanes<isa::generic> {
  static TESSERA_INLINE void unpack(const std::uint32_t* words, int count, int bits,
                                    std::int32_t* codes) {
    std::uint32_t padded[9]{};
    for (int i = 0; i < count; ++i) padded[i] = words[i];
    const std::uint32_t mask = (1u << bits) - 1;
    for (int i = 0; i < codes_of_block; ++i) {
      const int bit = i * bits, word = bit / 32;
      const std::uint64_t both = padded[word] | std::uint64_t{padded[word + 1]} << 32;
      codes[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(both >> bit % 32) & mask);
    }
  }
  static TESSERA_INLINE void look_up(const float* table, const std::int32_t* codes, float* values) {
    for (int i = 0; i < codes_of_block; ++i) values[i] = table[codes[i]];
  }
};

#if defined(__AVX2__)
template <>
struct code_lanes<isa::avx2> {
  static TESSERA_INLINE void unpack(const std::uint32_t* words, int count, int bits,
                                    std::int32_t* codes) {
    const __m256i low = first_words(words, count);
    const __m256i high = first_words(words + 1, count - 1);
    const __m256i mask = _mm256_set1_epi32((1 << bits) - 1);
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    TESSERA_UNROLL
    for (int i = 0; i < codes_of_block; i += 8) {
      const __m256i bit = _mm256_mullo_epi32(_mm256_add_epi32(lanes, _mm256_set1_epi32(i)),
                                             _mm256_set1_epi32(bits));
      const __m256i word = _mm256_srli_epi32(bit, 5);
      const __m256i shift = _mm256_and_si256(bit, _mm256_set1_epi32(31));
      const __m256i below = _mm256_srlv_epi32(_mm256_permutevar8x32_epi32(low, word), shift);
      // A shift by 32 or more gives 0: a code that begins on a word has nothing of the next one.
      const __m256i above = _mm256_sllv_epi32(_mm256_permutevar8x32_epi32(high, word),
                                              _mm256_sub_epi32(_mm256_set1_epi32(32), shift));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + i),
                          _mm256_and_si256(_mm256_or_si256(below, above), mask));
    }
  }
  static TESSERA_INLINE void look_up(const float* table, const std::int32_t* codes, float* values) {
    const __m256 low = _mm256_loadu_ps(table), high = _mm256_loadu_ps(table + 8);
    TESSERA_UNROLL
    for (int i = 0; i < codes_of_block; i += 8) {
      const __m256i code = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i));
      const __m256 is_high = _mm256_castsi256_ps(_mm256_slli_epi32(code, 28));
      _mm256_storeu_ps(values + i, _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, code),
                                                    _mm256_permutevar8x32_ps(high, code), is_high));
    }
  }

 private:
  static TESSERA_INLINE __m256i first_words(const std::uint32_t* words, int count) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_epi32(reinterpret_cast<const int*>(words),
                                 _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lanes));
  }
};
#endif

#if defined(__AVX512F__)
template <>
struct code_lanes<isa::avx512> {
  static TESSERA_INLINE void unpack(const std::uint32_t* words, int count, int bits,
                                    std::int32_t* codes) {
    const __m512i low = first_words(words, count);
    const __m512i high = first_words(words + 1, count - 1);
    const __m512i mask = _mm512_set1_epi32((1 << bits) - 1);
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    TESSERA_UNROLL
    for (int i = 0; i < codes_of_block; i += 16) {
      const __m512i bit = _mm512_mullo_epi32(_mm512_add_epi32(lanes, _mm512_set1_epi32(i)),
                                             _mm512_set1_epi32(bits));
      const __m512i word = _mm512_srli_epi32(bit, 5);
      const __m512i shift = _mm512_and_si512(bit, _mm512_set1_epi32(31));
      const __m512i below = _mm512_srlv_epi32(_mm512_permutexvar_epi32(word, low), shift);
      // A shift by 32 or more gives 0: a code that begins on a word has nothing of the next one.
      const __m512i above = _mm512_sllv_epi32(_mm512_permutexvar_epi32(word, high),
                                              _mm512_sub_epi32(_mm512_set1_epi32(32), shift));
      _mm512_storeu_si512(codes + i, _mm512_and_si512(_mm512_or_si512(below, above), mask));
    }
  }
  static TESSERA_INLINE void look_up(const float* table, const std::int32_t* codes, float* values) {
    const __m512 entries = _mm512_loadu_ps(table);
    TESSERA_UNROLL
    for (int i = 0; i < codes_of_block; i += 16) {
      const __m512i code = _mm512_loadu_si512(codes + i);
      _mm512_storeu_ps(values + i, _mm512_permutexvar_ps(code, entries));
    }
  }

 private:
  static TESSERA_INLINE __m512i first_words(const std::uint32_t* words, int count) {
    return _mm512_maskz_loadu_epi32(static_cast<__mmask16>((1u << count) - 1), words);
  }
};

template <>
struct code_lanes<isa::avx512_vnni> : code_lanes<isa::avx512> {};
template <>
struct code_lanes<isa::avx512_bf16> : code_lanes<isa::avx512> {};
#endif

}  // namespace tessera::prim
