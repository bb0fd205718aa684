// Packing: rows of tensors become panels of B and words of A. A row of the tensor is a column of B
// (keys: summed axis = head dim, a transpose) or a row of B (values: summed axis = keys).
#pragma once

#include <cstdint>
#include <cstring>

#include <tessera/prim/cpu/gemm/panels.hpp>
#include <tessera/prim/cpu/gemm/rows.hpp>
#include <tessera/prim/cpu/gemm/word_reader.hpp>
#include <tessera/prim/cpu/gemm/words.hpp>

namespace tessera::prim {

/// Rows [begin, end); `begin` is a multiple of the register width.
struct row_range {
  int begin = 0;
  int end = 0;
};

/// Packs `used` of the rows of `depth` elements as columns of B of the same numbers, followed by
/// zeros up to a whole register of columns.
template <class Words, class Isa, int Vectors, class Rows>
void pack_transposed(const Rows& rows, row_range used, int depth,
                     const panels<Isa, Vectors>& packed) {
  using vec = simd<Isa>;
  using reader = word_reader<Words>;
  constexpr int width = vec::width;
  constexpr int nr = panels<Isa, Vectors>::nr;
  const int words = packed.words;
  for (int row0 = used.begin; row0 < used.end; row0 += width) {
    const int present = used.end - row0 < width ? used.end - row0 : width;
    float* TESSERA_RESTRICT panel = packed.data + (row0 / nr) * words * nr + row0 % nr;
    for (int word0 = 0; word0 < words; word0 += width) {
      const int element0 = word0 * Words::k_pack;
      typename vec::reg block[width];
      for (int i = 0; i < width; ++i) {
        block[i] = i < present ? reader::read(rows.row(row0 + i) + element0, depth - element0)
                               : vec::zero();
      }
      vec::transpose(block);
      const int stored = words - word0 < width ? words - word0 : width;
      for (int i = 0; i < stored; ++i) vec::store(panel + (word0 + i) * nr, block[i]);
    }
  }
}

/// Packs `used` of the rows of `columns` elements as rows of B, followed by zeros up to a whole
/// register of rows. Rows with skip[row] (null: none) become zeros. Returns false if an element is
/// NaN or infinite.
template <class Words, class Isa, int Vectors, class Rows>
bool pack_rows(const Rows& rows, row_range used, int columns, const bool* skip,
               const panels<Isa, Vectors>& packed) {
  using vec = simd<Isa>;
  using reader = word_reader<Words>;
  constexpr int width = vec::width;
  auto nonfinite = vec::zero();
  const int end = (used.end + width - 1) / width * width;
  for (int column = 0; column < packed.columns; column += width) {
    const int stride = packed.stride(column);
    float* TESSERA_RESTRICT to = packed.at(used.begin / Words::k_pack, column);
    for (int row = used.begin; row < end; row += Words::k_pack, to += stride) {
      const typename Rows::element* from[Words::k_pack];
      for (int i = 0; i < Words::k_pack; ++i) {
        const bool present = row + i < used.end && (skip == nullptr || !skip[row + i]);
        from[i] = present ? rows.row(row + i) + column : nullptr;
      }
      const auto x = reader::read_rows(from, columns - column);
      nonfinite = reader::accumulate_nonfinite(x, nonfinite);
      vec::store(to, x);
    }
  }
  return vec::sum(nonfinite) == 0.0f;
}

/// Writes zeros to `cleared` of the rows of B, which begin and end whole words.
template <class Words, class Isa, int Vectors>
void clear_rows(row_range cleared, const panels<Isa, Vectors>& packed) {
  using vec = simd<Isa>;
  for (int column = 0; column < packed.columns; column += vec::width) {
    for (int row = cleared.begin; row < cleared.end; row += Words::k_pack) {
      vec::store(packed.at(row / Words::k_pack, column), vec::zero());
    }
  }
}

/// nonfinite[row] = some element of that row is NaN or infinite.
template <class Isa, class Rows>
void find_nonfinite(const Rows& rows, row_range used, int columns, bool* nonfinite) {
  for (int row = used.begin; row < used.end; ++row) {
    float sum = 0.0f;
    for (int d = 0; d < columns; ++d) sum += 0.0f * static_cast<float>(rows.row(row)[d]);
    nonfinite[row] = sum != 0.0f;
  }
}

/// Copies a row of A into words, followed by zeros up to a whole register.
template <class Isa, class Words, class Element>
TESSERA_INLINE void pack_a(const Element* row, int depth, float* TESSERA_RESTRICT out) {
  using reader = word_reader<Words>;
  for (int element = 0; element < depth; element += reader::elements) {
    simd<Isa>::store(out + element / Words::k_pack, reader::read(row + element, depth - element));
  }
}

}  // namespace tessera::prim
