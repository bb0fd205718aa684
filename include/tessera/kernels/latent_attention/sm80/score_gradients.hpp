// Gradients of what is added to scores: of a bias, summed in one order over the axes that it
// broadcasts, and of sinks.
#pragma once

#include <cmath>
#include <cstdint>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/latent_attention/sm80/gradient_tile.hpp>
#include <tessera/kernels/latent_attention/sm80/score_tile.hpp>
#include <tessera/kernels/latent_attention/sm80/sequences.hpp>
#include <tessera/prim/cuda/numbers.hpp>

namespace tessera::kernels::latent_attention::sm80 {

/// Numbers [begin, end) of an axis.
struct axis_part {
  std::int64_t begin = 0, end = 0;

  /// What a block owns, `step` of an axis with `extent` gradients, or all `length` of one that is
  /// summed over; `item` loses the number of the part.
  static __device__ __forceinline__ axis_part of(std::int64_t& item, std::int64_t extent,
                                                 std::int64_t step, std::int64_t length) {
    if (extent <= 1) return {0, length};
    const std::int64_t parts = ceil_div(extent, step), begin = item % parts * step;
    item /= parts;
    return {begin, begin + step < extent ? begin + step : extent};
  }
};

/// Blocks of a launch of `bias_gradients`.
inline std::int64_t bias_blocks(const score_gradient& to) {
  if (to.rows == 0 || to.columns == 0) return 0;
  return to.batches * to.heads * ceil_div(to.rows, tile_side) * ceil_div(to.columns, tile_side);
}

/// A block owns 64x64 gradients, or as many as there are on an axis that has one.
template <int Threads>
__global__ void __launch_bounds__(Threads, 1)
    bias_gradients(const __grid_constant__ latent_attention_kernel_args args,
                   const __grid_constant__ expanded_keys expanded, const gradient_sums sums) {
  static_assert(Threads == tile_threads);
  __shared__ tile_memory memory;
  const score_gradient& to = args.d_bias;
  std::int64_t item = blockIdx.x;
  const axis_part keys = axis_part::of(item, to.columns, tile_side, args.length);
  const axis_part tokens = axis_part::of(item, to.rows, tile_side, args.length);
  const axis_part heads = axis_part::of(item, to.heads, 1, args.heads);
  const axis_part entries = axis_part::of(item, to.batches, 1, args.entries);
  const std::int64_t group = args.heads / args.kv_heads;
  tile_sums sum;
  for (std::int64_t entry = entries.begin; entry < entries.end; ++entry) {
    for (std::int64_t head = heads.begin; head < heads.end; ++head) {
      for (std::int64_t token0 = tokens.begin; token0 < tokens.end; token0 += tile_side) {
        const row_block rows{.seq = sequence_of(args, entry),
                             .kv_head = head / group,
                             .first_head = head,
                             .first = token0,
                             .count = static_cast<int>(clipped(tokens.end - token0, tile_side))};
        const prim::key_interval seen = rows.keys_of_some(args);
        for (std::int64_t key0 = keys.begin; key0 < keys.end; key0 += tile_side) {
          if (seen.end <= key0 || seen.begin >= key0 + tile_side) continue;
          __syncthreads();
          place_rows(args, rows, memory);
          place_keys(args, expanded, rows, key0, args.length, memory);
          const gradient_tile tile = gradient_of(args, expanded, sums, rows, key0, memory);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) sum.at[i][j] += tile.d_scores.at[i][j];
          }
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      memory.weights[tile_sums::row() + i][tile_sums::column() + j] = sum.at[i][j];
    }
  }
  __syncthreads();
  // Of an axis that is summed over, the whole tile has one gradient.
  const int high = to.rows > 1 ? static_cast<int>(tokens.end - tokens.begin) : 1;
  const int wide = to.columns > 1 ? static_cast<int>(keys.end - keys.begin) : 1;
  for (int at = static_cast<int>(threadIdx.x); at < high * wide; at += Threads) {
    const int row = at / wide, column = at % wide;
    double x = 0;
    for (int i = row; i < (to.rows > 1 ? row + 1 : tile_side); ++i) {
      for (int j = column; j < (to.columns > 1 ? column + 1 : tile_side); ++j) {
        x += static_cast<double>(memory.weights[i][j]);
      }
    }
    const std::int64_t token = to.rows > 1 ? tokens.begin + row : 0;
    const std::int64_t key = to.columns > 1 ? keys.begin + column : 0;
    const std::int64_t entry = to.batches > 1 ? entries.begin : 0;
    const std::int64_t head = to.heads > 1 ? heads.begin : 0;
    prim::cuda::put_number(to.data, to.type,
                           entry * to.batch + head * to.head + token * to.row + key * to.column,
                           static_cast<float>(x));
  }
}

/// A block for each gradient of a sink: - sum over rows of exp(sink - lse) times the correction.
template <int Threads>
__global__ void __launch_bounds__(Threads)
    sink_gradients(const __grid_constant__ latent_attention_kernel_args args,
                   const gradient_sums sums) {
  __shared__ double parts[Threads];
  const std::int64_t row = blockIdx.x / args.sink_count, t = blockIdx.x % args.sink_count;
  const bool all_heads = args.d_sink_heads == 1;
  const std::int64_t heads = all_heads ? args.heads : 1, first = all_heads ? 0 : row;
  double sum = 0;
  for (std::int64_t at = threadIdx.x; at < args.entries * args.length * heads; at += Threads) {
    const std::int64_t head = first + at % heads, number = at / heads;
    const std::int64_t entry = number / args.length, token = number % args.length;
    const float lse =
        args.lse.data[entry * args.lse.batch + head * args.lse.head + token * args.lse.row];
    if (lse == prim::minus_infinity) continue;
    const float sink = args.sinks[head * args.sink_head_stride + t * args.sink_stride];
    const float weight = sink == lse ? 1.0f : expf(sink - lse);
    sum -=
        static_cast<double>(weight) * static_cast<double>(sums.rows[number * args.heads + head].x);
  }
  parts[threadIdx.x] = sum;
  for (int step = Threads / 2; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) parts[threadIdx.x] += parts[threadIdx.x + step];
  }
  if (threadIdx.x == 0) {
    args.d_sinks[row * args.d_sink_head_stride + t * args.d_sink_stride] =
        static_cast<float>(parts[0]);
  }
}

}  // namespace tessera::kernels::latent_attention::sm80
