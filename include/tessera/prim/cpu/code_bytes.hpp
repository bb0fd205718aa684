// Codes of four or eight bits as unsigned bytes, and their products with numbers of fixed point in
// three signed bytes (VPDPBUSD): sums are whole numbers, nothing is rounded until they are floats.
//
// | function | meaning |
// |---|---|
// | lower_codes(codes), upper_codes(codes) | the lower and upper halves of bytes |
// | look_up(table, codes) | entries of a table of 16 bytes |
// | whole_sums(codes, numbers, stride, sums) | codes times rows of numbers, by lane, as floats |
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
  static constexpr int digits = 3;  ///< bytes of a number

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
  /// are on the way may not. Each digit has a sum of its own, of one row two, so that none waits
  /// for another.
  template <int Registers, int Sums>
  static TESSERA_INLINE void whole_sums(const reg (&codes)[Registers], const std::int8_t* first,
                                        std::int64_t stride, __m512 (&sums)[Sums]) {
    constexpr int parts = Sums == 1 && Registers > 1 ? 2 : 1;
    const std::int8_t* rows[Sums];
    reg whole[parts][digits][Sums];
    TESSERA_UNROLL
    for (int i = 0; i < Sums; ++i) rows[i] = first + i * stride;
    TESSERA_UNROLL
    for (int r = 0; r < Registers; ++r) {
      TESSERA_UNROLL
      for (int digit = 0; digit < digits; ++digit) {
        TESSERA_UNROLL
        for (int i = 0; i < Sums; ++i) {
          const std::int8_t* const number = rows[i] + (digit * Registers + r) * width;
          reg& own = whole[r % parts][digit][i];
          own = _mm512_dpbusd_epi32(r < parts ? _mm512_setzero_si512() : own, codes[r],
                                    _mm512_loadu_si512(number));
        }
      }
    }
    TESSERA_UNROLL
    for (int i = 0; i < Sums; ++i) {
      const auto digit = [&](int number) {
        return parts == 1 ? whole[0][number][i]
                          : _mm512_add_epi32(whole[0][number][i], whole[parts - 1][number][i]);
      };
      const reg high = _mm512_slli_epi32(digit(0), 16), middle = _mm512_slli_epi32(digit(1), 8);
      sums[i] = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_add_epi32(high, middle), digit(2)));
    }
  }
};
#endif

}  // namespace tessera::prim
