// Codes of four or eight bits as unsigned bytes, and their products with numbers of fixed point in
// three signed bytes (VPDPBUSD): sums are whole numbers, nothing is rounded until they are floats.
//
// | function | meaning |
// |---|---|
// | load(codes), load_n(codes, bytes) | a block of codes, zeros behind them |
// | lower_codes(block), upper_codes(block) | the lower and upper halves of its bytes |
// | look_up(table, codes) | entries of a table of 16 bytes |
// | whole_sums(codes, numbers, stride, sums) | codes times rows of numbers, by lane, as floats |
// | spread(scales, columns, shift) | the scale of each lane |
//
// Numbers lie as codes do: the most significant bytes of a block's, then the middle ones, then the
// least; each in as many registers as the block has codes.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/isa.hpp>

#if defined(__AVX512VNNI__)
#include <immintrin.h>
#endif

namespace tessera::prim {

template <class Isa>
struct code_bytes;

#if defined(__AVX512VNNI__)
template <>
struct code_bytes<isa::avx512_vnni> {
  using reg = __m512i;
  static constexpr int width = 64;  ///< bytes of a register
  static constexpr int lanes = 16;  ///< sums of a register
  static constexpr int digits = 3;  ///< bytes of a number

  static TESSERA_INLINE reg load(const std::byte* codes) { return _mm512_loadu_si512(codes); }
  static TESSERA_INLINE reg load_n(const std::byte* codes, int bytes) {
    return _mm512_maskz_loadu_epi8((std::uint64_t{1} << bytes) - 1, codes);
  }
  static TESSERA_INLINE reg lower_codes(reg block) {
    return _mm512_and_si512(block, _mm512_set1_epi8(15));
  }
  static TESSERA_INLINE reg upper_codes(reg block) {
    return lower_codes(_mm512_srli_epi16(block, 4));
  }
  /// The same 16 bytes in all lanes of 128 bits.
  static TESSERA_INLINE reg table_of(const std::uint8_t* entries) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(entries)));
  }
  static TESSERA_INLINE reg look_up(reg table, reg codes) {
    return _mm512_shuffle_epi8(table, codes);
  }

  /// sums[i] = codes times the numbers at first + i stride. Sums must fit into 32 bits; what they
  /// are on the way may not. Digit by digit, so that one sum does not wait for another.
  template <int Registers, int Sums>
  static TESSERA_INLINE void whole_sums(const reg (&codes)[Registers], const std::int8_t* first,
                                        std::int64_t stride, __m512 (&sums)[Sums]) {
    reg whole[Sums];
    TESSERA_UNROLL
    for (int i = 0; i < Sums; ++i) whole[i] = _mm512_setzero_si512();
    TESSERA_UNROLL
    for (int digit = 0; digit < digits; ++digit) {
      TESSERA_UNROLL
      for (int i = 0; i < Sums; ++i) {
        if (digit > 0) whole[i] = _mm512_slli_epi32(whole[i], 8);
      }
      TESSERA_UNROLL
      for (int r = 0; r < Registers; ++r) {
        TESSERA_UNROLL
        for (int i = 0; i < Sums; ++i) {
          const std::int8_t* const number = first + i * stride + (digit * Registers + r) * width;
          whole[i] = _mm512_dpbusd_epi32(whole[i], codes[r], _mm512_loadu_si512(number));
        }
      }
    }
    TESSERA_UNROLL
    for (int i = 0; i < Sums; ++i) sums[i] = _mm512_cvtepi32_ps(whole[i]);
  }

  /// The column of each lane of a block, `columns` of which a lane has; and that of a later one.
  static TESSERA_INLINE reg columns_of_lanes(int columns) {
    const reg lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_mullo_epi32(lane, _mm512_set1_epi32(columns));
  }
  static TESSERA_INLINE reg later(reg columns, int by) {
    return _mm512_add_epi32(columns, _mm512_set1_epi32(by));
  }
  /// The scale of each lane: that of group `column` / 2^shift, of 16 ones.
  static TESSERA_INLINE __m512 spread(__m512 scales, reg columns, reg shift) {
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(columns, shift), scales);
  }
  static TESSERA_INLINE reg broadcast(int x) { return _mm512_set1_epi32(x); }
};
#endif

}  // namespace tessera::prim
