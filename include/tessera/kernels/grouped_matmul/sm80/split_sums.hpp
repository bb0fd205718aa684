// Products of few rows: the summed axis in parts that are multiplied side by side, as matrices of a
// batch, and their sums added up in order.
#pragma once

#include <cstdint>

#include <tessera/kernels/grouped_matmul/sm80/product.hpp>
#include <tessera/kernels/grouped_matmul/sm80/result.hpp>

namespace tessera::kernels::grouped_matmul::sm80 {

/// The product of each part, to sums of f32: those of a part lie as the result does.
inline product_args part_products(product_args args, std::int64_t parts, float* sums) {
  const auto cut = [&](factor& operand) {
    operand.matrix.group = args.depth / parts * (operand.across ? operand.matrix.row : 1);
  };
  cut(args.a);
  cut(args.b);
  args.depth /= parts;
  args.matrices = parts;
  args.to = {sums, dtype::f32, args.rows * args.columns, args.columns};
  args.bias = args.init = {};
  args.finish = {};
  return args;
}

inline constexpr int part_threads = 64;

/// Adds up the sums of all parts, for eight columns of a row each thread.
template <class Epilogue>
__global__ void __launch_bounds__(part_threads)
    add_parts(const product_args args, const float* sums, const std::int64_t parts,
              const Epilogue epilogue) {
  const std::int64_t wide = ceil_div(args.columns, result_columns);
  const std::int64_t item = std::int64_t{blockIdx.x} * part_threads + threadIdx.x;
  const std::int64_t row = item / wide, first = item % wide * result_columns;
  if (row >= args.rows) return;
  const int count = args.columns - first < result_columns ? static_cast<int>(args.columns - first)
                                                          : result_columns;
  const float* from = sums + row * args.columns + first;
  const std::int64_t step = args.rows * args.columns;
  float x[result_columns] = {};
#pragma unroll 4
  for (std::int64_t part = 0; part < parts; ++part) {
#pragma unroll
    for (int i = 0; i < result_columns; ++i) {
      if (i < count) x[i] += from[part * step + i];
    }
  }
  complete_and_store(args, 0, row, first, count, x, epilogue);
}

}  // namespace tessera::kernels::grouped_matmul::sm80
