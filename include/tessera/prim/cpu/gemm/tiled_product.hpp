// C = A B and C += A B of any size on AMX tiles.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/prim/cpu/gemm/product.hpp>
#include <tessera/prim/cpu/gemm/tiles.hpp>

namespace tessera::prim {

/// As `product`: columns [columns.begin, columns.end), whole tiles of which the first is an even
/// one, over words of which there are whole tiles. Rows of A are read, but no rows of C written, up
/// to whole tiles. The tile registers are this thread's (`tile_scope`).
template <product_kind Kind, class Tiles, class Isa>
void tiled_product(const float* a, int rows, std::int64_t a_stride, const panels<Isa, 2>& b,
                   product_range words, product_range columns, float* c, std::int64_t c_stride) {
  constexpr bool adds = Kind == product_kind::add;
  const auto step = [&]<bool Adds>(auto& product, int row, int column, float* to,
                                   std::int64_t to_stride) {
    const typename std::remove_reference_t<decltype(product)>::operands from{
        a + row * a_stride + words.begin, a_stride, b.at(words.begin, column), b.stride(column)};
    product.template begin<Adds>(from, to, to_stride);
    product.add(product.next(from), words.end - words.begin - tile_width);
  };
  // Blocks of the same shape follow each other, for the sums of one are stored beside the next.
  const auto blocks = [&]<int RowTiles, int ColumnTiles>(int row, int end_row, int begin, int end) {
    if (row >= end_row || begin >= end) return;
    tile_product<Tiles, RowTiles, ColumnTiles> product;
    for (int column = begin; column < end; column += ColumnTiles * tile_width) {
      for (int r = row; r < end_row; r += RowTiles * tile_rows) {
        step.template operator()<adds>(product, r, column, c + r * c_stride + column, c_stride);
      }
    }
    product.finish();
  };
  const auto last_rows = [&]<int ColumnTiles>(int row, int begin, int end) {
    constexpr int width = ColumnTiles * tile_width;
    for (int column = begin; row < rows && column < end; column += width) {
      float sums[tile_rows * width];
      tile_product<Tiles, 1, ColumnTiles> product;
      step.template operator()<false>(product, row, column, sums, width);
      product.finish();
      for (int r = row; r < rows; ++r) {
        float* const to = c + r * c_stride + column;
        const float* const sum = sums + (r - row) * width;
        for (int i = 0; i < width; ++i) to[i] = adds ? to[i] + sum[i] : sum[i];
      }
    }
  };
  const int pairs = rows / (2 * tile_rows) * (2 * tile_rows);
  const int whole = rows / tile_rows * tile_rows;
  const auto all_rows = [&]<int ColumnTiles>(int begin, int end) {
    blocks.template operator()<2, ColumnTiles>(0, pairs, begin, end);
    blocks.template operator()<1, ColumnTiles>(pairs, whole, begin, end);
    last_rows.template operator()<ColumnTiles>(whole, begin, end);
  };
  const int even =
      columns.begin + (columns.end - columns.begin) / (2 * tile_width) * (2 * tile_width);
  all_rows.template operator()<2>(columns.begin, even);
  all_rows.template operator()<1>(even, columns.end);
}

}  // namespace tessera::prim
