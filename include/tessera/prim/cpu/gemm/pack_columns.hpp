// Packing where the rows of a tensor are the summed axis: as columns of A, and computed floats as
// rows of B.
#pragma once

#include <cstdint>

#include <tessera/prim/cpu/gemm/word_reader.hpp>
#include <tessera/prim/cpu/gemm/words.hpp>

namespace tessera::prim {

/// Packs the first `used` rows of `columns` elements as columns of A: row d of A holds element d of
/// all of them, followed by zeros up to a whole register of words; there are whole registers
/// of such rows. Rows with skip[row] become zeros. Returns false if an element is NaN
/// or infinite.
template <class Words, class Isa, class Rows>
bool pack_columns(const Rows& rows, int used, int columns, const bool* skip,
                  float* TESSERA_RESTRICT to, std::int64_t to_stride) {
  using vec = simd<Isa>;
  using reader = word_reader<Words>;
  constexpr int width = vec::width;
  auto nonfinite = vec::zero();
  for (int column = 0; column < columns; column += width) {
    for (int word0 = 0; word0 * Words::k_pack < used; word0 += width) {
      typename vec::reg block[width];
      for (int i = 0; i < width; ++i) {
        const typename Rows::element* from[Words::k_pack];
        for (int half = 0; half < Words::k_pack; ++half) {
          const int row = (word0 + i) * Words::k_pack + half;
          from[half] = row < used && !skip[row] ? rows.row(row) + column : nullptr;
        }
        block[i] = reader::read_rows(from, columns - column);
        nonfinite = reader::accumulate_nonfinite(block[i], nonfinite);
      }
      vec::transpose(block);
      for (int i = 0; i < width; ++i) vec::store(to + (column + i) * to_stride + word0, block[i]);
    }
  }
  return vec::sum(nonfinite) == 0.0f;
}

/// Writes registers of floats, of rows k_pack k ... of B, as words of row k.
template <class Words>
struct row_words;

template <class Isa>
struct row_words<f32_words<Isa>> {
  using reg = typename simd<Isa>::reg;
  static TESSERA_INLINE void store(float* words, const reg (&rows)[1]) {
    simd<Isa>::store(words, rows[0]);
  }
};

#if defined(__AVX512BF16__)
template <class Isa>
struct row_words<bf16_words<Isa>> {
  using reg = typename simd<Isa>::reg;
  static TESSERA_INLINE void store(float* words, const reg (&rows)[2]) {
    // Sixteen numbers of the first row, then those of the second: element i of both is word i.
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(rows[1], rows[0]);
    const __m512i order = _mm512_setr_epi32(
        0x100000, 0x110001, 0x120002, 0x130003, 0x140004, 0x150005, 0x160006, 0x170007, 0x180008,
        0x190009, 0x1a000a, 0x1b000b, 0x1c000c, 0x1d000d, 0x1e000e, 0x1f000f);
    simd<Isa>::store(words, _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, both)));
  }
};
#endif

}  // namespace tessera::prim
