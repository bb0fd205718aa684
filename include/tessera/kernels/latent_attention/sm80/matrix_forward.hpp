// Attention on latents in pages on the matrix unit, for f16 and bf16: a block has 64 query rows,
// tokens times heads, and goes along its keys, or a split of them. A tile of latents is loaded once
// and serves as keys and as values.
//
//   for each tile of keys { wait; start the next; scores; logits; maxima; weights; sums += P V }
//
// Of scores warps have 32x16, of weighted values all rows and 64 columns.
#pragma once

#include <cstdint>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/latent_attention/sm80/forward.hpp>
#include <tessera/kernels/latent_attention/sm80/matrix_tile.hpp>
#include <tessera/kernels/latent_attention/sm80/score_tile.hpp>
#include <tessera/kernels/latent_attention/sm80/sequences.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/pipeline.hpp>
#include <tessera/prim/cuda/tanh.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::latent_attention::sm80 {

/// Scores of a warp. A thread has rows `row(m, half)`, and columns `column(n)` and the next.
template <class Shape>
struct matrix_scores {
  static constexpr int high = Shape::warp_rows / 16;  ///< tiles of 16 rows
  static constexpr int steps = Shape::width / 16;     ///< of the summed axis
  static_assert(steps % 2 == 0);
  prim::cuda::accumulator at[high][2] = {};

  /// Four warps for each half of the summed axis.
  static __device__ __forceinline__ int depth_half() { return threadIdx.x / 128; }
  static __device__ __forceinline__ int pair() { return threadIdx.x / 32 % 4; }
  /// Warps that have the same columns.
  static __device__ __forceinline__ int warp_column() {
    return pair() / Shape::row_warps * 2 + depth_half();
  }
  static __device__ __forceinline__ int first_row() {
    return pair() % Shape::row_warps * Shape::warp_rows;
  }
  static __device__ __forceinline__ int first_column() { return warp_column() * 16; }
  static __device__ __forceinline__ int row(int m, int half) {
    return first_row() + m * 16 + half * 8 + static_cast<int>(threadIdx.x % 32 / 4);
  }
  static __device__ __forceinline__ int column(int n) {
    return first_column() + n * 8 + static_cast<int>(threadIdx.x % 4 * 2);
  }

  /// Q K^T. `exchange`: 8 KiB of shared memory that nobody reads or writes meanwhile.
  __device__ __forceinline__ void multiply(std::uint32_t queries, std::uint32_t keys,
                                           std::uint32_t exchange) {
    if (depth_half() == 0) {
      multiply_half<0>(queries, keys, exchange);
    } else {
      multiply_half<1>(queries, keys, exchange);
    }
  }

  /// Calls body(score, m, half, column of the tile).
  template <class Body>
  __device__ __forceinline__ void for_each(const Body& body) {
#pragma unroll
    for (int m = 0; m < high; ++m) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) body(at[m][n].at[e], m, e / 2, column(n) + e % 2);
      }
    }
  }

 private:
  /// 32 columns of half of the summed axis; then the two warps that have the same of both halves
  /// give each other 16 of them.
  template <int Half>
  __device__ __forceinline__ void multiply_half(std::uint32_t queries, std::uint32_t keys,
                                                std::uint32_t exchange) {
    using words = prim::cuda::half_words<typename Shape::element>;
    const std::uint32_t lane = threadIdx.x % 32;
    const std::uint32_t a_lane = queries + Shape::query_tile::lane_of_a(lane) +
                                 static_cast<unsigned>(first_row()) * Shape::query_tile::row_bytes;
    const std::uint32_t b_lane =
        keys + Shape::key_tile::lane_of_b(lane) +
        static_cast<unsigned>(pair() / Shape::row_warps * 32) * Shape::key_tile::row_bytes;
    prim::cuda::accumulator sums[high][4] = {};
#pragma unroll
    for (int i = 0; i < steps / 2; ++i) {
      const int k = i + Half * steps / 2;
      prim::cuda::fragment_b2 b[2];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        prim::cuda::load_matrices(b[n].reg, Shape::key_tile::step(b_lane, n, k));
      }
#pragma unroll
      for (int m = 0; m < high; ++m) {
        prim::cuda::fragment_a a;
        prim::cuda::load_matrices(a.reg, Shape::query_tile::step(a_lane, m, k));
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          words::template multiply_add<0>(sums[m][2 * n], a, b[n]);
          words::template multiply_add<1>(sums[m][2 * n + 1], a, b[n]);
        }
      }
    }
    const std::uint32_t place = exchange + static_cast<unsigned>(pair()) * 2048 + lane * 16;
    const auto give = [&] {
#pragma unroll
      for (int i = 0; i < 2 * high; ++i) {
        const auto& from = sums[i / 2][2 - 2 * Half + i % 2].at;
        const std::uint32_t bits[4] = {__float_as_uint(from[0]), __float_as_uint(from[1]),
                                       __float_as_uint(from[2]), __float_as_uint(from[3])};
        prim::cuda::store_shared_16(place + static_cast<unsigned>(i) * 512, bits);
      }
    };
    const auto take = [&] {
#pragma unroll
      for (int i = 0; i < 2 * high; ++i) {
        std::uint32_t bits[4];
        prim::cuda::load_shared_16(bits, place + static_cast<unsigned>(i) * 512);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          at[i / 2][i % 2].at[e] = sums[i / 2][2 * Half + i % 2].at[e] + __uint_as_float(bits[e]);
        }
      }
    };
    if constexpr (Half == 1) give();
    prim::cuda::wait_for_threads(pair() + 1, 64);
    if constexpr (Half == 0) {
      take();
      give();
    }
    prim::cuda::wait_for_threads(pair() + 1, 64);
    if constexpr (Half == 1) take();
  }
};

/// Weighted values of a warp: all rows, 64 columns.
template <class Shape>
struct matrix_sums {
  prim::cuda::accumulator at[4][8] = {};

  static __device__ __forceinline__ int row(int m, int half) {
    return m * 16 + half * 8 + static_cast<int>(threadIdx.x % 32 / 4);
  }
  static __device__ __forceinline__ int column(int n) {
    return static_cast<int>(threadIdx.x / 32 * 64 + threadIdx.x % 4 * 2) + n * 8;
  }

  /// += P V.
  __device__ __forceinline__ void add(std::uint32_t weights, std::uint32_t values) {
    using words = prim::cuda::half_words<typename Shape::element>;
    const std::uint32_t lane = threadIdx.x % 32;
    const std::uint32_t a_lane = weights + Shape::weight_tile::lane_of_a(lane);
    // 64 columns are one line.
    const std::uint32_t b_lane = values + Shape::key_tile::lane_of_a(lane) + threadIdx.x / 32 * 128;
    prim::cuda::fragment_b2 b[2];
    const auto load = [&](int step) {
      prim::cuda::load_matrices_transposed(b[step % 2].reg,
                                           Shape::key_tile::step(b_lane, step / 4, step % 4));
    };
    load(0);
#pragma unroll
    for (int k = 0; k < Shape::keys / 16; ++k) {
      prim::cuda::fragment_a a[4];
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        prim::cuda::load_matrices(a[m].reg, Shape::weight_tile::step(a_lane, m, k));
      }
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        if (k * 4 + n + 1 < Shape::keys / 4) load(k * 4 + n + 1);
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          words::template multiply_add<0>(at[m][2 * n], a[m], b[n % 2]);
          words::template multiply_add<1>(at[m][2 * n + 1], a[m], b[n % 2]);
        }
      }
    }
  }

  /// Multiplies rows by what sums so far count relative to a tile's maximum.
  __device__ __forceinline__ void rescale(const float* before, const float* after) {
#pragma unroll
    for (int m = 0; m < 4; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float old = before[row(m, half)], now = after[row(m, half)];
        if (prim::cuda::any_of_warp(old != now)) {
          const float factor = old == now ? 1.0f : exponential(old - prim::finite_maximum(now));
#pragma unroll
          for (int n = 0; n < 8; ++n) {
            at[m][n].at[2 * half] *= factor;
            at[m][n].at[2 * half + 1] *= factor;
          }
        }
      }
    }
  }
};

template <class Shape>
__global__ void __launch_bounds__(matrix_threads, 1)
    attend_on_matrix_unit(const __grid_constant__ latent_attention_kernel_args args,
                          const std::int64_t* starts, const split_results results) {
  using pipeline = prim::cuda::pipeline<2>;
  using scores_type = matrix_scores<Shape>;
  extern __shared__ __align__(1024) unsigned char bytes[];
  auto* const of_keys = reinterpret_cast<row_offsets*>(bytes + Shape::offsets_at);
  auto(&of_tile)[4][matrix_rows] =
      *reinterpret_cast<float(*)[4][matrix_rows]>(bytes + Shape::statistics_at);
  auto(&maxima)[2][matrix_rows] = *reinterpret_cast<float(*)[2][matrix_rows]>(&of_tile[4]);
  const std::uint32_t queries = prim::cuda::shared_address(bytes);
  const std::uint32_t weights = queries + Shape::weights_at;
  const auto place_of = [&](int stage) {
    return queries + Shape::keys_at + static_cast<unsigned>(stage) * Shape::key_tile::bytes;
  };

  const row_block rows = row_block_of(args, starts, blockIdx.x / results.splits, matrix_rows);
  if (rows.count == 0) return;
  const std::int64_t split = blockIdx.x % results.splits;
  const auto keys = keys_of_split(args, rows, results, split);
  const auto first = static_cast<int>(keys.begin), end = static_cast<int>(keys.end);
  const int thread = static_cast<int>(threadIdx.x);
  // Where a thread's key of a tile lies: the number of its page is asked for well before.
  const std::int32_t* const numbers = args.pages.numbers + rows.seq.index * args.pages.row;
  const auto page_size = static_cast<std::uint32_t>(args.pages.page_size);
  std::uint32_t asked = 0;
  std::int32_t page = 0;
  const auto ask_for_keys = [&](int key0) {
    asked = static_cast<std::uint32_t>(key0 + thread);
    if (thread < Shape::keys && key0 + thread < end) page = numbers[asked / page_size];
  };
  const auto place_keys = [&] {
    if (thread >= Shape::keys) return;
    const std::uint32_t slot = asked % page_size, lanes = static_cast<unsigned>(args.pages.lanes);
    const auto offset = [&](const latent_rows& of) {
      return of.at(clipped(page, args.pages.page_count - 1), slot / lanes, slot % lanes);
    };
    of_keys[thread] = static_cast<int>(asked) < end
                          ? row_offsets{offset(args.ckv), offset(args.k_pe)}
                          : row_offsets{};
  };
  const auto start_keys = [&](int place) {
    copy_rows<typename Shape::key_tile>(args, args.ckv, args.k_pe, place_of(place),
                                        [&](std::uint32_t r) { return of_keys[r]; });
  };

  copy_rows<typename Shape::query_tile>(args, args.q, args.q_pe, queries, [&](std::uint32_t r) {
    const int row = static_cast<int>(r);
    return row < rows.count ? row_offsets{rows.at(args.q, row), rows.at(args.q_pe, row)}
                            : row_offsets{};
  });
  ask_for_keys(first);
  place_keys();
  if (thread < matrix_rows) maxima[0][thread] = prim::minus_infinity;
  __syncthreads();
  start_keys(0);
  pipeline::commit();
  __syncthreads();
  ask_for_keys(first + Shape::keys);
  place_keys();

  // Keys that each of this thread's rows sees, and those that all rows of the block see.
  const auto seen = rows.seen(args);
  const auto of_block = seen.keys_of(rows.token(0), rows.token(rows.count - 1)).all;
  constexpr int high = scores_type::high;
  int begins[high][2], ends[high][2];
  float denominators[high][2] = {};
#pragma unroll
  for (int m = 0; m < high; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = scores_type::row(m, half);
      const auto own = r < rows.count ? seen.keys_of(rows.token(r)) : prim::key_interval{};
      begins[m][half] = static_cast<int>(own.begin);
      ends[m][half] = static_cast<int>(own.end);
    }
  }
  matrix_sums<Shape> sums;
  pipeline stages;
  int now = 0;  // the maxima of the tiles before

  for (int key0 = first; key0 < end; key0 += Shape::keys) {
    pipeline::wait();
    if (key0 + Shape::keys < end) start_keys(stages.next_stage());
    pipeline::commit();
    ask_for_keys(key0 + 2 * Shape::keys);
    const std::uint32_t tile = place_of(stages.stage());
    scores_type scores;
    scores.multiply(queries, tile, weights);

    const bool whole = key0 >= of_block.begin && key0 + Shape::keys <= of_block.end;
    const bool capped = args.soft_cap > 0;
    const float scale = capped ? args.softmax_scale / args.soft_cap : args.softmax_scale;
    float most[high][2];
#pragma unroll
    for (auto& of_rows : most) of_rows[0] = of_rows[1] = prim::minus_infinity;
    scores.for_each([&](float& x, int m, int half, int column) {
      x *= scale;
      if (capped) x = args.soft_cap * prim::cuda::tanh_fast(x);
      const int key = key0 + column;
      if (!whole && (key < begins[m][half] || key >= ends[m][half])) x = prim::minus_infinity;
      most[m][half] = fmaxf(most[m][half], x);
    });
#pragma unroll
    for (int m = 0; m < high; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float of_row = prim::cuda::maximum_of_quad(most[m][half]);
        if (thread % 4 == 0)
          of_tile[scores_type::warp_column()][scores_type::row(m, half)] = of_row;
      }
    }
    __syncthreads();

    place_keys();  // nobody looks for the places of the next ones any more
    if (!whole) clear_nonfinite<Shape>(tile);
    float shifts[high][2];
#pragma unroll
    for (int m = 0; m < high; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = scores_type::row(m, half);
        const float before = maxima[now][r];
        float after = before;
#pragma unroll
        for (int w = 0; w < Shape::column_warps; ++w) after = fmaxf(after, of_tile[w][r]);
        shifts[m][half] = prim::finite_maximum(after);
        denominators[m][half] *= before == after ? 1.0f : exponential(before - shifts[m][half]);
        if (scores_type::warp_column() == 0 && thread % 4 == 0) maxima[now ^ 1][r] = after;
      }
    }
    scores.for_each([&](float& x, int m, int half, int) {
      x = exponential(x - shifts[m][half]);
      denominators[m][half] += x;
    });
#pragma unroll
    for (int m = 0; m < high; ++m) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const auto r = static_cast<unsigned>(scores_type::row(m, half));
          const auto c = static_cast<unsigned>(scores_type::column(n));
          prim::cuda::store_shared_4(
              weights + Shape::weight_tile::offset(r, c / 8) + c % 8 * 2,
              prim::cuda::half_words<typename Shape::element>::pack(
                  scores.at[m][n].at[2 * half], scores.at[m][n].at[2 * half + 1]));
        }
      }
    }
    __syncthreads();

    sums.rescale(maxima[now], maxima[now ^ 1]);
    sums.add(weights, tile);
    now ^= 1;
    stages.advance();
  }
  pipeline::drain();

  __syncthreads();
#pragma unroll
  for (int m = 0; m < high; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = prim::cuda::sum_of_quad(denominators[m][half]);
      if (thread % 4 == 0) of_tile[scores_type::warp_column()][scores_type::row(m, half)] = sum;
    }
  }
  __syncthreads();
  if (thread < rows.count) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < Shape::column_warps; ++w) sum += of_tile[w][thread];
    results.states[split * results.rows + rows.number(args, thread)] = {maxima[now][thread], sum};
  }
#pragma unroll
  for (int m = 0; m < 4; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = matrix_sums<Shape>::row(m, half);
      if (r >= rows.count) continue;
      float* const to = results.sums + (split * results.rows + rows.number(args, r)) * args.value;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const int column = matrix_sums<Shape>::column(n);
        if (column >= args.value) continue;
        *reinterpret_cast<float2*>(to + column) =
            make_float2(sums.at[m][n].at[2 * half], sums.at[m][n].at[2 * half + 1]);
      }
    }
  }
}

}  // namespace tessera::kernels::latent_attention::sm80
