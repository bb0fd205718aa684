// Packing of matrices whose rows or columns are the summed axis, in the order in which rows are
// stored: a tile reads a kilobyte here and a kilobyte there, and each page once.
#pragma once

#include <cstdint>

#include <tessera/kernels/grouped_matmul/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/pack.hpp>
#include <tessera/prim/cpu/gemm/rows.hpp>
#include <tessera/prim/cpu/gemm/word_reader.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::grouped_matmul::cpu {

/// Calls visit(pointer to the elements). Words of bf16 are made of bf16 alone.
template <class Kernel, class Tensor, class Visit>
TESSERA_INLINE void with_operand(const Tensor& tensor, const Visit& visit) {
  if constexpr (traits<Kernel>::words::k_pack == 2) {
    visit(static_cast<const bf16*>(tensor.data));
  } else {
    prim::with_elements<typename traits<Kernel>::isa_type>(
        tensor, [&](const auto* elements) { visit(elements); });
  }
}

/// Where the rows of a word lie: `row` of `rows`, and of two words the next one; null behind
/// `depth`.
template <class Kernel, class Rows>
TESSERA_INLINE void find_rows(
    const Rows& rows, int word, int depth, int column,
    const typename Rows::element* (&from)[traits<Kernel>::words::k_pack]) {
  constexpr int k_pack = traits<Kernel>::words::k_pack;
  for (int i = 0; i < k_pack; ++i) {
    const int row = word * k_pack + i;
    from[i] = row < depth ? rows.row(row) + column : nullptr;
  }
}

/// A row along the summed axis becomes a row of A, followed by zeros up to a whole register.
template <class Kernel, class Element>
TESSERA_INLINE void pack_a_row(const Element* from, int depth, float* a, std::int64_t row) {
  using shape = traits<Kernel>;
  using reader = prim::word_reader<typename shape::words>;
  for (int element = 0; element < depth; element += reader::elements) {
    shape::vec::store(a + shape::a_at(row, element / shape::words::k_pack),
                      reader::read(from + element, depth - element));
  }
}

/// Rows along the summed axis, side by side, become the same rows of A.
template <class Kernel, class Rows>
void pack_a_rows(const Rows& rows, int count, int depth, float* a) {
  for (int row = 0; row < count; ++row) pack_a_row<Kernel>(rows.row(row), depth, a, row);
}

/// `depth` rows across the summed axis: their columns become rows of A.
template <class Kernel, class Rows>
void pack_a_columns(const Rows& rows, int count, int depth, float* a) {
  using shape = traits<Kernel>;
  using reader = prim::word_reader<typename shape::words>;
  constexpr int width = shape::width;
  const int words = prim::words_for<typename shape::words>(depth);
  for (int word0 = 0; word0 < words; word0 += width) {
    for (int column = 0; column < count; column += width) {
      typename shape::vec::reg block[width];
      for (int i = 0; i < width; ++i) {
        const typename Rows::element* from[shape::words::k_pack];
        find_rows<Kernel>(rows, word0 + i, depth, column, from);
        block[i] = reader::read_rows(from, count - column);
      }
      shape::vec::transpose(block);
      for (int i = 0; i < width; ++i) {
        shape::vec::store(a + shape::a_at(column + i, word0), block[i]);
      }
    }
  }
}

/// Words of the columns of a panel, of which `count` are there: row i of a word is row[i], null for
/// zeros.
template <class Kernel, class Element>
TESSERA_INLINE void read_panel(
    const Element* const (&row)[traits<Kernel>::words::k_pack], int count,
    typename traits<Kernel>::vec::reg (&panel)[traits<Kernel>::vectors]) {
  using shape = traits<Kernel>;
  using reader = prim::word_reader<typename shape::words>;
  constexpr int width = shape::width;
#if defined(__AVX512BF16__)
  if constexpr (shape::words::k_pack == 2 && shape::vectors % 2 == 0) {
    // Element i of both rows is word i: two registers of words of one of each row.
    const __m512i first = _mm512_setr_epi32(
        0x200000, 0x210001, 0x220002, 0x230003, 0x240004, 0x250005, 0x260006, 0x270007, 0x280008,
        0x290009, 0x2a000a, 0x2b000b, 0x2c000c, 0x2d000d, 0x2e000e, 0x2f000f);
    const __m512i later = _mm512_add_epi16(first, _mm512_set1_epi16(width));
    TESSERA_UNROLL
    for (int v = 0; v < shape::vectors; v += 2) {
      const int left = count - v * width;
      const auto load = [&](const Element* p) {
        if (p == nullptr || left <= 0) return _mm512_setzero_si512();
        return _mm512_castps_si512(reader::read(p + v * width, left));
      };
      const __m512i even = load(row[0]), odd = load(row[1]);
      panel[v] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(even, first, odd));
      panel[v + 1] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(even, later, odd));
    }
    return;
  }
#endif
  TESSERA_UNROLL
  for (int v = 0; v < shape::vectors; ++v) {
    const int left = count - v * width;
    if (left <= 0) {
      panel[v] = shape::vec::zero();
      continue;
    }
    const Element* from[shape::words::k_pack];
    for (int i = 0; i < shape::words::k_pack; ++i) {
      from[i] = row[i] == nullptr ? nullptr : row[i] + v * width;
    }
    panel[v] = reader::read_rows(from, left);
  }
}

/// `depth` rows across the summed axis become the same rows of B.
template <class Kernel, class Rows>
void pack_b_rows(const Rows& rows, int columns, int depth,
                 const typename traits<Kernel>::panels& packed) {
  using shape = traits<Kernel>;
  constexpr int width = shape::width, nr = shape::panels::nr;
  for (int word = 0; word < packed.words; ++word) {
    float* to = packed.data + std::int64_t{word} * nr;
    for (int first = 0; first < columns; first += nr, to += std::int64_t{packed.words} * nr) {
      const typename Rows::element* from[shape::words::k_pack];
      find_rows<Kernel>(rows, word, depth, first, from);
      typename shape::vec::reg panel[shape::vectors];
      read_panel<Kernel>(from, columns - first, panel);
      TESSERA_UNROLL
      for (int v = 0; v < shape::vectors; ++v) shape::vec::store(to + v * width, panel[v]);
    }
  }
}

/// Rows along the summed axis become columns of B.
template <class Kernel, class Rows>
void pack_b_columns(const Rows& rows, int columns, int depth,
                    const typename traits<Kernel>::panels& packed) {
  using shape = traits<Kernel>;
  prim::pack_transposed<typename shape::words>(rows, {0, columns}, depth, packed);
}

}  // namespace tessera::kernels::grouped_matmul::cpu
