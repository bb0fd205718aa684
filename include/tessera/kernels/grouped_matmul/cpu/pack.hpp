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

/// Rows along the summed axis, side by side, become the same rows of A.
template <class Kernel, class Rows>
void pack_a_rows(const Rows& rows, int count, int depth, float* a) {
  using shape = traits<Kernel>;
  for (int row = 0; row < count; ++row) {
    prim::pack_a<typename shape::isa_type, typename shape::words>(
        rows.row(row), depth, a + std::int64_t{row} * shape::a_stride);
  }
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
        shape::vec::store(a + std::int64_t{column + i} * shape::a_stride + word0, block[i]);
      }
    }
  }
}

/// `depth` rows across the summed axis become the same rows of B. Rows are far apart, where no
/// prefetcher follows: the lines of later ones are asked for.
template <class Kernel, class Rows>
void pack_b_rows(const Rows& rows, int columns, int depth,
                 const typename traits<Kernel>::panels& packed) {
  using shape = traits<Kernel>;
  using reader = prim::word_reader<typename shape::words>;
  constexpr int width = shape::width, nr = shape::panels::nr, k_pack = shape::words::k_pack;
  constexpr int words_ahead = 4;
  for (int word = 0; word < packed.words; ++word) {
    const int later = (word + words_ahead) * k_pack;
    float* to = packed.data + std::int64_t{word} * nr;
    for (int first = 0; first < columns; first += nr, to += std::int64_t{packed.words} * nr) {
      TESSERA_UNROLL
      for (int v = 0; v < shape::vectors; ++v) {
        const int column = first + v * width;
        if (column >= columns) break;
        const typename Rows::element* from[k_pack];
        find_rows<Kernel>(rows, word, depth, column, from);
        if (later < depth) TESSERA_PREFETCH(rows.row(later) + column);
        shape::vec::store(to + v * width, reader::read_rows(from, columns - column));
      }
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
