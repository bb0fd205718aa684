// Words of four signed bytes, which tile registers multiply as they are (tiles.hpp).
#pragma once

#include <cstdint>

#include <tessera/prim/cpu/gemm/word_reader.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::prim {

#if defined(__AVX512BW__)
/// Sums are whole numbers of 32 bits in the place of floats; they wrap around.
template <class Isa>
struct signed_byte_words {
  static constexpr int k_pack = 4;
  using reg = typename simd<Isa>::reg;
  /// A sum as a float.
  static TESSERA_INLINE reg float_of_sum(reg sum) {
    return _mm512_cvtepi32_ps(_mm512_castps_si512(sum));
  }
};

template <class Isa>
struct word_reader<signed_byte_words<Isa>> {
  using reg = typename simd<Isa>::reg;
  static constexpr int elements = 4 * simd<Isa>::width;

  /// The first `count` elements; zeros behind them.
  static TESSERA_INLINE reg read(const std::int8_t* p, int count = elements) {
    const __mmask64 lanes = count >= elements ? ~__mmask64{0} : (__mmask64{1} << count) - 1u;
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi8(lanes, p));
  }
};

/// What rows of tiles that multiply bytes are made of.
template <>
struct byte_words_of<backend::cpu_amx_bf16> {
  using type = signed_byte_words<isa::avx512_bf16>;
};
#endif

}  // namespace tessera::prim
