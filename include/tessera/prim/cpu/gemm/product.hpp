// C = A B and C += A B of any size, by microkernels: rows of A in words, B in panels.
#pragma once

#include <cstdint>

#include <tessera/prim/cpu/gemm/microkernel.hpp>
#include <tessera/prim/cpu/gemm/panels.hpp>

namespace tessera::prim {

/// Numbers [begin, end): words of the summed axis, or columns (whole registers).
struct product_range {
  int begin = 0;
  int end = 0;
};

/// Calls `body.template operator()<Rows, Vectors, BStride>(row, column)` for each register tile of
/// a product of `rows` rows with columns of `b`: rows [row, row + Rows) and Vectors registers of
/// columns from `column` on, whose words are BStride apart. A panel of B stays in the first-level
/// cache while the rows of A pass by.
template <int Mr, class Isa, int Vectors, class Body>
TESSERA_INLINE void for_each_register_tile(int rows, const panels<Isa, Vectors>& b,
                                           product_range columns, const Body& body) {
  constexpr int nr = panels<Isa, Vectors>::nr, width = panels<Isa, Vectors>::width;
  const auto tiles_of = [&]<int Count, int BStride>(int column) {
    for_each_row_tile<Mr>(rows, [&]<int Rows>(int first) {
      body.template operator()<Rows, Count, BStride>(first, column);
    });
  };
  for (int column = columns.begin; column < columns.end;) {
    const bool wide = b.stride(column) == nr;
    if (wide && column % nr == 0 && column + nr <= columns.end) {
      tiles_of.template operator()<Vectors, nr>(column);
      column += nr;
      continue;
    }
    if (wide) {
      tiles_of.template operator()<1, nr>(column);
    } else {
      tiles_of.template operator()<1, width>(column);
    }
    column += width;
  }
}

enum class product_kind { overwrite, add };

/// The columns of C over the words of A and B, of which there is at least one. Rows of A are
/// AStride words apart, and a running sum has at most `chain` words.
template <product_kind Kind, class Words, int Mr, int AStride, class Isa, int Vectors>
void product(const float* a, int rows, const panels<Isa, Vectors>& b, product_range words,
             product_range columns, float* c, std::int64_t c_stride, int chain = any_length) {
  float unchanged[Mr];
  for (float& factor : unchanged) factor = 1.0f;
  for_each_register_tile<Mr>(
      rows, b, columns, [&]<int Rows, int Count, int BStride>(int first, int column) {
        using kernel = microkernel<Isa, Words, Rows, Count>;
        const float* const of_a = a + std::int64_t{first} * AStride + words.begin;
        const float* const of_b = b.at(words.begin, column);
        float* const to = c + first * c_stride + column;
        if constexpr (Kind == product_kind::overwrite) {
          kernel::template multiply<AStride, BStride>(of_a, of_b, words.end - words.begin, chain,
                                                      to, c_stride);
        } else {
          kernel::template rescale_and_add<AStride, BStride>(of_a, of_b, words.end - words.begin,
                                                             chain, unchanged, to, c_stride);
        }
      });
}

}  // namespace tessera::prim
