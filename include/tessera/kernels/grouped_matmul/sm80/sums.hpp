// Gradients without a product of their own: of scales, from sums over pieces of k; of biases; of
// the initial output.
#pragma once

#include <cstdint>

#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/kernels/grouped_matmul/sm80/product.hpp>
#include <tessera/prim/cuda/numbers.hpp>

namespace tessera::kernels::grouped_matmul::sm80 {

inline constexpr int sum_threads = 256;
/// Columns of a block that sums rows, and rows that it reads side by side.
inline constexpr int sum_columns = 64, sum_streams = sum_threads / 32;

/// d_rhs_scale: a thread adds up the pieces of a block of k, in their order; see `sum_for_scales`.
static __global__ void add_scale_sums(const grouped_matmul_kernel_args args, const float* sums,
                                      const std::int64_t piece) {
  const std::int64_t at = std::int64_t{blockIdx.x} * sum_threads + threadIdx.x;
  const std::int64_t n = at % args.n, block = at / args.n % args.scale_blocks;
  const std::int64_t matrix = at / args.n / args.scale_blocks;
  if (matrix >= args.groups) return;
  const std::int64_t size = args.k / args.scale_blocks;
  const std::int64_t first = block * size / piece;
  const std::int64_t last = size == 0 ? first - 1 : ((block + 1) * size - 1) / piece;
  const float* const of_matrix =
      sums + matrix * (args.scale_blocks + ceil_div(args.k, piece)) * args.n + n;
  float sum = 0;
  for (std::int64_t i = first; i <= last; ++i) sum += of_matrix[(block + i) * args.n];
  prim::cuda::put_number(args.d_rhs_scale.data, args.d_rhs_scale.type,
                         args.d_rhs_scale.offset(matrix, block, n), sum);
}

/// d_rhs_bias: a block has columns of a matrix, a warp every eighth row. 64 rows are one running
/// sum, or its error would grow with their number.
static __global__ void __launch_bounds__(sum_threads)
    sum_rows(const grouped_matmul_kernel_args args, const row_table table) {
  __shared__ float shared[sum_streams][sum_columns];
  const std::int64_t wide = ceil_div(args.n, sum_columns);
  const std::int64_t matrix = blockIdx.x / wide;
  const std::int64_t column = blockIdx.x % wide * sum_columns + threadIdx.x % 32;
  const int stream = static_cast<int>(threadIdx.x / 32);
  std::int64_t row = 0, end = args.m;
  if (table.rows != nullptr) {
    row = table.rows[matrix + 1];
    end = table.rows[matrix + 2];
  }
  float sums[2] = {0, 0};
  for (row += stream; row < end;) {
    float partial[2] = {0, 0};
    for (int i = 0; i < 64 && row < end; ++i, row += sum_streams) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        if (column + c * 32 >= args.n) continue;
        partial[c] += prim::cuda::number_at(args.d_out.data, args.d_out.type,
                                            args.d_out.offset(matrix, row, column + c * 32));
      }
    }
    sums[0] += partial[0];
    sums[1] += partial[1];
  }
  shared[stream][threadIdx.x % 32] = sums[0];
  shared[stream][threadIdx.x % 32 + 32] = sums[1];
  __syncthreads();
  if (stream >= 2 || column + stream * 32 >= args.n) return;
  float sum = 0;
  for (int s = 0; s < sum_streams; ++s) sum += shared[s][threadIdx.x];
  prim::cuda::put_number(args.d_rhs_bias.data, args.d_rhs_bias.type,
                         args.d_rhs_bias.offset(matrix, 0, column + stream * 32), sum);
}

/// d_out_init = d_out: a block has a part of a row.
static __global__ void __launch_bounds__(sum_threads)
    copy_rows(const grouped_matmul_kernel_args args) {
  const std::int64_t wide = ceil_div(args.n, sum_threads);
  const std::int64_t line = blockIdx.x / wide;
  const std::int64_t column = blockIdx.x % wide * sum_threads + threadIdx.x;
  if (column >= args.n) return;
  const std::int64_t matrix = line / args.m, row = line % args.m;
  const float x = prim::cuda::number_at(args.d_out.data, args.d_out.type,
                                        args.d_out.offset(matrix, row, column));
  prim::cuda::put_number(args.d_out_init.data, args.d_out_init.type,
                         args.d_out_init.offset(matrix, row, column), x);
}

}  // namespace tessera::kernels::grouped_matmul::sm80
