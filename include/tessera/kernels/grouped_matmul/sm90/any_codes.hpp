// Products of elements of 8 bits that the copy unit cannot address (strides that are negative, axes
// beyond its numbers, sums of i8 that 32 bits do not hold): a thread for eight results of a row.
#pragma once

#include <cstdint>

#include <tessera/families/grouped_matmul/options.hpp>
#include <tessera/kernels/grouped_matmul/sm80/result.hpp>
#include <tessera/kernels/grouped_matmul/sm90/scaled_product.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/spec/float8.hpp>

namespace tessera::kernels::grouped_matmul::sm90 {

inline constexpr int any_threads = 128;

/// As multiply_scaled, but that depths and strides count elements. `tile_rows` is what the table of
/// groups is cut into; a block has as many rows, and eight columns.
template <class A, class B, class Epilogue>
__global__ void __launch_bounds__(any_threads)
    multiply_any_codes(const product_args args, const operand_scales scales,
                       const product_scales how, const int tile_rows, const Epilogue epilogue) {
  constexpr int columns = sm80::result_columns;
  const tile_place at = sm80::place_of(args, blockIdx.x, tile_rows, columns);
  if (!at.exists) return;
  const auto* const lhs = static_cast<const A*>(args.a.matrix.data);
  const auto* const rhs = static_cast<const B*>(args.b.matrix.data);
  const bool blocks = how == product_scales::blocks;
  const std::int64_t matrix = at.stored_matrix();
  const int count =
      args.columns - at.column < columns ? static_cast<int>(args.columns - at.column) : columns;
  for (std::int64_t row = at.row + threadIdx.x; row < at.row + tile_rows && row < at.rows;
       row += any_threads) {
    const std::int64_t line = at.first + row;
    float x[columns] = {};
    for (std::int64_t k = 0; k < at.depth; ++k) {
      const std::int64_t block = blocks ? k / scale_block : 0;
      const float a = prim::cuda::float_of(lhs[args.a.matrix.offset(matrix, line, k)]) *
                      scales.a[matrix * scales.a_group + line * scales.a_row + block];
#pragma unroll
      for (int i = 0; i < columns; ++i) {
        if (i >= count) continue;
        const std::int64_t n = at.column + i, scale_row = blocks ? n / scale_block : n;
        const float b = scales.b[matrix * scales.b_group + scale_row * scales.b_row + block];
        x[i] += a * (b * prim::cuda::float_of(rhs[args.b.matrix.offset(matrix, n, k)]));
      }
    }
    sm80::complete_and_store(args, at.matrix, line, at.column, count, x, epilogue);
  }
}

}  // namespace tessera::kernels::grouped_matmul::sm90
