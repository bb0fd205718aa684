// Blocks of one, two or four registers of codes, each word of 32 bits as many side by side: a lane
// of a block has the codes of neighbouring words, so that its products have one sum and one scale.
//
// | function | meaning |
// |---|---|
// | load(codes, block), load_n(codes, bytes, block) | a block of codes, zeros behind them |
// | by_lanes(block) | words n l .. n l + n - 1 of n registers come to lane l, one to each |
// | groups_of_lanes(n, shift) | the group of each lane of n columns, from the first lane's on |
// | load_scales<n>(scales) | of n groups or more |
// | spread(scales, groups) | the scale of each lane |
// | power_scales, e4m3_scales | the same, of scales of a byte each |
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tessera/prim/common/host_device.hpp>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace tessera::prim {

template <class Isa>
struct code_blocks;

#if defined(__AVX512F__)
/// The ISA in the type keeps translation units with different flags apart.
template <class Isa>
struct code_blocks {
  using reg = __m512i;
  static constexpr int width = 64;  ///< bytes of a register
  static constexpr int lanes = 16;  ///< sums of a register

  template <int Registers>
  static TESSERA_INLINE void load(const std::byte* codes, reg (&block)[Registers]) {
    TESSERA_UNROLL
    for (int i = 0; i < Registers; ++i) block[i] = _mm512_loadu_si512(codes + i * width);
  }
  template <int Registers>
  static TESSERA_INLINE void load_n(const std::byte* codes, int bytes, reg (&block)[Registers]) {
    TESSERA_UNROLL
    for (int i = 0; i < Registers; ++i) {
      const int left = bytes - i * width;
      const std::uint64_t held = left >= width ? ~std::uint64_t{0}
                                 : left > 0    ? (std::uint64_t{1} << left) - 1
                                               : 0;
      block[i] = _mm512_maskz_loadu_epi8(held, codes + i * width);
    }
  }

  static TESSERA_INLINE void by_lanes(reg (&/*block*/)[1]) {}
  static TESSERA_INLINE void by_lanes(reg (&block)[2]) {
    const reg even = every_second(0), odd = every_second(1);
    const reg first = _mm512_permutex2var_epi32(block[0], even, block[1]);
    block[1] = _mm512_permutex2var_epi32(block[0], odd, block[1]);
    block[0] = first;
  }
  static TESSERA_INLINE void by_lanes(reg (&block)[4]) {
    // Of two registers the words of the first two results, and those of the others.
    const reg first = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    const reg second = _mm512_add_epi32(first, _mm512_set1_epi32(2));
    const reg a = _mm512_permutex2var_epi32(block[0], first, block[1]);
    const reg b = _mm512_permutex2var_epi32(block[0], second, block[1]);
    const reg c = _mm512_permutex2var_epi32(block[2], first, block[3]);
    const reg d = _mm512_permutex2var_epi32(block[2], second, block[3]);
    block[0] = _mm512_shuffle_i64x2(a, c, 0x44);
    block[1] = _mm512_shuffle_i64x2(a, c, 0xee);
    block[2] = _mm512_shuffle_i64x2(b, d, 0x44);
    block[3] = _mm512_shuffle_i64x2(b, d, 0xee);
  }

  /// Of groups of 2^shift columns. A block has whole groups or lies in one, so that these are the
  /// same for every block.
  static TESSERA_INLINE reg groups_of_lanes(int columns, int shift) {
    const reg lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_srlv_epi32(_mm512_mullo_epi32(lane, broadcast(columns)), broadcast(shift));
  }
  /// As few as that: a register of them mostly lies across two lines.
  template <int Groups>
  static TESSERA_INLINE __m512 load_scales(const float* scales) {
    if constexpr (Groups <= 4) return _mm512_castps128_ps512(_mm_loadu_ps(scales));
    return _mm512_loadu_ps(scales);
  }
  static TESSERA_INLINE __m512 spread(__m512 scales, reg groups) {
    return _mm512_permutexvar_ps(groups, scales);
  }

  /// 2^(scale - 127), `add` modulo 256 added to scales. Exponents are not 0 nor 255 then.
  struct power_scales {
    static constexpr int groups = 4;
    reg places;
    reg add;

    TESSERA_INLINE power_scales(reg groups_of_lanes, int add_to_scales)
        // Other bytes have a place that stands for zero.
        : places(_mm512_or_si512(_mm512_slli_epi32(groups_of_lanes, 24), broadcast(0x808080))),
          add(_mm512_slli_epi32(broadcast(add_to_scales), 24)) {}
    TESSERA_INLINE __m512 operator()(const std::uint8_t* scales) const {
      std::int32_t all;
      std::memcpy(&all, scales, sizeof all);
      const reg upper = _mm512_shuffle_epi8(broadcast(all), places);
      return _mm512_castsi512_ps(_mm512_srli_epi32(_mm512_add_epi32(upper, add), 1));
    }
  };
  /// Numbers of E4M3 times a factor. NaN is none of them. Moved to the place of a binary16's
  /// exponent and mantissa they are 2^8 times smaller.
  struct e4m3_scales {
    static constexpr int groups = 8;
    __m256i places;
    __m512 factor;

    TESSERA_INLINE e4m3_scales(reg groups_of_lanes, float times)
        : places(_mm256_or_si256(_mm256_slli_epi16(_mm512_cvtepi32_epi16(groups_of_lanes), 8),
                                 _mm256_set1_epi16(0x80))),
          factor(_mm512_set1_ps(times * 0x1p8f)) {}
    TESSERA_INLINE __m512 operator()(const std::uint8_t* scales) const {
      std::int64_t all;
      std::memcpy(&all, scales, sizeof all);
      const __m256i upper = _mm256_shuffle_epi8(_mm256_set1_epi64x(all), places);
      const __m256i kept = _mm256_set1_epi16(static_cast<short>(0xbf80));
      const __m256i halves = _mm256_and_si256(_mm256_srai_epi16(upper, 1), kept);
      return _mm512_mul_ps(_mm512_cvtph_ps(halves), factor);
    }
  };

 private:
  static TESSERA_INLINE reg broadcast(int x) { return _mm512_set1_epi32(x); }
  static TESSERA_INLINE reg every_second(int from) {
    const reg even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_add_epi32(even, broadcast(from));
  }
};
#endif

}  // namespace tessera::prim
