// Gradients of blocksparse attention. Blocks of 16 rows own d_q: they look at the tiles of keys
// that they see. Then blocks of 16 keys own d_k and d_v: they look at the rows that see them, head
// by head of their group. Scores are computed twice, and what is added up is added in one order.
#pragma once

#include <cstdint>

#include <tessera/kernels/sparse_attention/sm80/blocksparse_rows.hpp>
#include <tessera/kernels/sparse_attention/sm80/float_tiles.hpp>
#include <tessera/kernels/sparse_attention/sm80/gradient_tiles.hpp>
#include <tessera/kernels/sparse_attention/sm80/softmax_line.hpp>
#include <tessera/kernels/sparse_attention/sm80/visible_pairs.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

/// D = <d_out, out> - d_lse of each row, half a warp at a row; 0 of rows that see nothing.
template <class Kernel, class Mask>
__global__ void __launch_bounds__(threads)
    blocksparse_corrections(const __grid_constant__ blocksparse_launch<Mask> launch,
                            std::int64_t items) {
  const blocksparse_kernel_args& call = launch.call;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const tile_place rows = tile_place::of(item, call.q_heads, call.q_len);
    const std::int64_t row = rows.first + line_of_thread();
    const bool is_row = line_of_thread() < rows.count;
    float sum = 0.0f;
    if (is_row &&
        call.lse.data[offset_in(call.lse, rows.entry, rows.head, row)] != prim::minus_infinity) {
      const std::int64_t out = offset_in(call.out, rows.entry, rows.head, row);
      const std::int64_t d_out = offset_in(call.d_out, rows.entry, rows.head, row);
      for (std::int64_t d = place_of_thread(); d < call.v_head_dim; d += tile) {
        sum = fmaf(prim::cuda::number_at(call.out.data, call.out.type, out + d),
                   prim::cuda::number_at(call.d_out.data, call.d_out.type, d_out + d), sum);
      }
      if (place_of_thread() == 0 && call.d_lse.data != nullptr) {
        sum -= call.d_lse.data[offset_in(call.d_lse, rows.entry, rows.head, row)];
      }
    }
    sum = sum_of_line(sum);
    if (is_row && place_of_thread() == 0) {
      launch.corrections[(rows.entry * call.q_heads + rows.head) * call.q_len + row] = sum;
    }
  }
}

/// What a thread knows of the row of its pair.
struct pair_row {
  row_view view{};
  float shift = 0.0f, correction = 0.0f;
  bool alive = false;  ///< it sees something

  template <class Mask>
  static __device__ __forceinline__ pair_row of(const blocksparse_launch<Mask>& launch,
                                                const tile_place& rows, int r) {
    pair_row found;
    if (r >= rows.count) return found;
    const blocksparse_kernel_args& call = launch.call;
    const std::int64_t row = rows.first + r;
    found.shift = call.lse.data[offset_in(call.lse, rows.entry, rows.head, row)];
    found.correction =
        launch.corrections[(rows.entry * call.q_heads + rows.head) * call.q_len + row];
    found.view = launch.pairs.view_of(rows.entry, row);
    found.alive = found.shift != prim::minus_infinity;
    return found;
  }
};

/// Weight and gradient of row r and key j of tiles that are loaded.
template <class Mask>
__device__ __forceinline__ pair_gradient gradient_of(const blocksparse_launch<Mask>& launch,
                                                     const gradient_tiles& tiles,
                                                     const pair_row& of, const tile_place& rows,
                                                     int r, const tile_place& keys, int j,
                                                     prim::tile_visibility some) {
  const bool sees =
      of.alive && j < keys.count &&
      (some == prim::tile_visibility::full ||
       launch.pairs.sees(of.view, rows.entry, rows.head, rows.first + r, keys.first + j));
  if (!sees) return {};
  const score_units units{launch.call.softmax_scale, launch.call.soft_cap};
  const float product = dot(tiles.q.row(r), tiles.k.row(j), tiles.k.columns);
  const float gradient = dot(tiles.d_out.row(r), tiles.v.row(j), tiles.v.columns);
  return pair_gradient::of(units.logit(product), gradient, units.slope(product), of.shift,
                           of.correction, 1.0f);
}

/// d_q. A line of threads is a row.
template <class Kernel, class Mask>
__global__ void __launch_bounds__(threads)
    blocksparse_query_gradients(const __grid_constant__ blocksparse_launch<Mask> launch,
                                std::int64_t items) {
  extern __shared__ float blocksparse_memory[];
  __shared__ seen_tiles seen;
  const blocksparse_kernel_args& call = launch.call;
  const gradient_tiles tiles(blocksparse_memory, call.head_dim, call.v_head_dim);
  const int r = line_of_thread(), j = place_of_thread();
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const tile_place rows = tile_place::of(item, call.q_heads, call.q_len);
    __syncthreads();
    rows.load(tiles.q, call.q);
    rows.load(tiles.d_out, call.d_out);
    const pair_row of = pair_row::of(launch, rows, r);
    line_sums d_q;
    d_q.clear();
    for_each_seen_tile(launch, rows, seen, [&](const tile_place& keys, prim::tile_visibility some) {
      __syncthreads();
      keys.load(tiles.k, call.k);
      keys.load(tiles.v, call.v);
      __syncthreads();
      d_q.add(gradient_of(launch, tiles, of, rows, r, keys, j, some).d_score, tiles.k);
    });
    if (r >= rows.count) continue;
    d_q.store(call.d_q, offset_in(call.d_q, rows.entry, rows.head, rows.first + r), call.head_dim,
              call.softmax_scale);
  }
}

/// d_k and d_v. A line of threads is a key.
template <class Kernel, class Mask>
__global__ void __launch_bounds__(threads, 1)
    blocksparse_key_gradients(const __grid_constant__ blocksparse_launch<Mask> launch,
                              std::int64_t items) {
  extern __shared__ float blocksparse_memory[];
  __shared__ seen_tiles seen;
  const blocksparse_kernel_args& call = launch.call;
  const gradient_tiles tiles(blocksparse_memory, call.head_dim, call.v_head_dim);
  const std::int64_t row_tiles = (call.q_len + tile - 1) / tile;
  const int j = line_of_thread(), r = place_of_thread();
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const tile_place keys = tile_place::of(item, call.kv_heads, call.kv_len);
    __syncthreads();
    keys.load(tiles.k, call.k);
    keys.load(tiles.v, call.v);
    line_sums d_k, d_v;
    d_k.clear();
    d_v.clear();
    const std::int64_t first_head = keys.head * launch.group();
    for (std::int64_t head = first_head; head < first_head + launch.group(); ++head) {
      const auto rows_of = [&](std::int64_t number) {
        const std::int64_t first = number * tile, left = call.q_len - first;
        return tile_place{keys.entry, head, first, left < tile ? static_cast<int>(left) : tile};
      };
      for (std::int64_t first = 0; first < row_tiles; first += threads) {
        seen.look(first, row_tiles, [&](std::int64_t number) {
          const tile_place rows = rows_of(number);
          const int of_head = static_cast<int>(head);
          return launch.pairs.classify({keys.entry, of_head, of_head + 1, rows.first,
                                        rows.first + rows.count, keys.first,
                                        keys.first + keys.count});
        });
        const int count =
            row_tiles - first < threads ? static_cast<int>(row_tiles - first) : threads;
        for (int n = 0; n < count; ++n) {
          if (seen.of[n] == prim::tile_visibility::skip) continue;
          const tile_place rows = rows_of(first + n);
          __syncthreads();
          rows.load(tiles.q, call.q);
          rows.load(tiles.d_out, call.d_out);
          __syncthreads();
          const pair_gradient pair = gradient_of(launch, tiles, pair_row::of(launch, rows, r), rows,
                                                 r, keys, j, seen.of[n]);
          d_k.add(pair.d_score, tiles.q);
          d_v.add(pair.weight, tiles.d_out);
        }
      }
    }
    if (j >= keys.count) continue;
    d_k.store(call.d_k, offset_in(call.d_k, keys.entry, keys.head, keys.first + j), call.head_dim,
              call.softmax_scale);
    d_v.store(call.d_v, offset_in(call.d_v, keys.entry, keys.head, keys.first + j), call.v_head_dim,
              1.0f);
  }
}

/// Minus the sum of exp(sink - lse) D over the rows of a head, or of all heads: a block for each
/// sink, whose threads add up rows 256 apart, and then in order.
template <class Kernel, class Mask>
__global__ void __launch_bounds__(threads)
    blocksparse_sink_gradients(const __grid_constant__ blocksparse_launch<Mask> launch) {
  __shared__ double sums[threads];
  const blocksparse_kernel_args& call = launch.call;
  const std::int64_t row = blockIdx.x / call.sink_count, number = blockIdx.x % call.sink_count;
  const std::int64_t begin = call.sink_rows == 1 ? 0 : row;
  const std::int64_t end = call.sink_rows == 1 ? call.q_heads : row + 1;
  double sum = 0;
  for (std::int64_t entry = 0; entry < call.batch; ++entry) {
    for (std::int64_t head = begin; head < end; ++head) {
      const float sink = call.sinks.data[head * call.sinks.head + number * call.sinks.sink];
      for (std::int64_t i = threadIdx.x; i < call.q_len; i += threads) {
        const float lse = call.lse.data[offset_in(call.lse, entry, head, i)];
        if (lse == prim::minus_infinity) continue;
        const double weight = sink == lse ? 1.0 : exp(static_cast<double>(sink) - lse);
        sum += weight * launch.corrections[(entry * call.q_heads + head) * call.q_len + i];
      }
    }
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int step = threads / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    call.d_sinks.data[row * call.d_sinks.head + number * call.d_sinks.sink] =
        static_cast<float>(-sums[0]);
  }
}

}  // namespace tessera::kernels::sparse_attention::sm80
