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

enum class product_kind { overwrite, add };

/// The columns of C over the words of A and B, of which there is at least one. A panel of B stays
/// in the first-level cache while the rows of A pass by. Rows of A are AStride words apart, and a
/// running sum has at most `chain` words.
template <product_kind Kind, class Words, int Mr, int AStride, class Isa, int Vectors>
void product(const float* a, int rows, const panels<Isa, Vectors>& b, product_range words,
             product_range columns, float* c, std::int64_t c_stride, int chain = any_length) {
  constexpr int nr = panels<Isa, Vectors>::nr, width = panels<Isa, Vectors>::width;
  float unchanged[Mr];
  for (float& factor : unchanged) factor = 1.0f;
  const auto multiply = [&]<int Count, int BStride>(int column) {
    for_each_row_tile<Mr>(rows, [&]<int Rows>(int first) {
      using kernel = microkernel<Isa, Words, Rows, Count>;
      const float* const of_a = a + std::int64_t{first} * AStride + words.begin;
      const float* const of_b = b.at(words.begin, column);
      float* const to = c + first * c_stride + column;
      if constexpr (Kind == product_kind::overwrite) {
        kernel::template multiply<AStride, BStride>(of_a, of_b, words.end - words.begin, chain, to,
                                                    c_stride);
      } else {
        kernel::template rescale_and_add<AStride, BStride>(of_a, of_b, words.end - words.begin,
                                                           chain, unchanged, to, c_stride);
      }
    });
  };
  for (int column = columns.begin; column < columns.end;) {
    const bool wide = b.stride(column) == nr;
    if (wide && column % nr == 0 && column + nr <= columns.end) {
      multiply.template operator()<Vectors, nr>(column);
      column += nr;
      continue;
    }
    if (wide) {
      multiply.template operator()<1, nr>(column);
    } else {
      multiply.template operator()<1, width>(column);
    }
    column += width;
  }
}

}  // namespace tessera::prim
