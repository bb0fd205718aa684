// Products of whole matrices, in floats: latents times weights are keys and values, and backwards
// gradients of keys and values become those of latents and of weights.
#pragma once

#include <cstdint>

#include <tessera/kernels/latent_attention/sm80/float_tile.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::latent_attention::sm80 {

/// An operand of a batch of products: element (line, k) of product (outer, inner) and term `sum`
/// lies at the sum of their strides. What is not finite counts as 0 if `finite`.
struct product_operand {
  const void* data = nullptr;
  dtype type = dtype::none;
  std::int64_t outer = 0, inner = 0, sum = 0;
  std::int64_t line = 0, depth = 0;
  bool finite = false;
};

/// Products that are added up: a b^T, so many times.
struct product_term {
  product_operand a{}, b{};
  std::int64_t depth = 0;
};

/// to[line of a][line of b] = the sum of both terms over [0, sums), for each outer and inner.
struct product_args {
  product_term terms[2]{};
  std::int64_t sums = 1;
  void* to = nullptr;
  dtype to_type = dtype::none;
  std::int64_t to_outer = 0, to_inner = 0, to_row = 0;
  std::int64_t outers = 1, inners = 1;
  std::int64_t rows = 0, columns = 0;

  std::int64_t blocks() const {
    const auto tiles = [](std::int64_t count) { return (count + tile_side - 1) / tile_side; };
    return outers * inners * tiles(rows) * tiles(columns);
  }
};

/// Loads 32 steps of 64 lines; lanes go along the axis whose elements are nearer to each other.
__device__ __forceinline__ void load_lines(const product_operand& from, std::int64_t offset,
                                           std::int64_t lines, std::int64_t depth, float_tile& to) {
  const int lane = static_cast<int>(threadIdx.x);
  const bool along = from.depth == 1;
  prim::cuda::with_elements(from.data, from.type, [&](const auto* elements) {
#pragma unroll
    for (int i = 0; i < tile_side * tile_depth / tile_threads; ++i) {
      const int line = along ? lane / 8 + i % 2 * 32 : lane % 64;
      const int k = along ? lane % 8 + i / 2 * 8 : lane / 64 + i * 4;
      const bool held = line < lines && k < depth;
      float x =
          held ? prim::cuda::float_of(elements[offset + line * from.line + k * from.depth]) : 0.0f;
      if (from.finite && !is_finite(x)) x = 0.0f;
      to[k][line] = x;
    }
  });
}

template <int Threads>
__global__ void __launch_bounds__(Threads) multiply(const __grid_constant__ product_args args) {
  static_assert(Threads == tile_threads);
  __shared__ float_tile a, b;
  const std::int64_t wide = (args.columns + tile_side - 1) / tile_side;
  const std::int64_t high = (args.rows + tile_side - 1) / tile_side;
  const std::int64_t tile = blockIdx.x % (wide * high), batch = blockIdx.x / (wide * high);
  const std::int64_t row0 = tile / wide * tile_side, column0 = tile % wide * tile_side;
  const std::int64_t outer = batch / args.inners, inner = batch % args.inners;
  tile_sums sums;
  for (std::int64_t sum = 0; sum < args.sums; ++sum) {
    for (const product_term& term : args.terms) {
      const auto place = [&](const product_operand& of, std::int64_t line) {
        return outer * of.outer + inner * of.inner + sum * of.sum + line * of.line;
      };
      const std::int64_t from_a = place(term.a, row0), from_b = place(term.b, column0);
      for (std::int64_t k = 0; k < term.depth; k += tile_depth) {
        __syncthreads();
        load_lines(term.a, from_a + k * term.a.depth, args.rows - row0, term.depth - k, a);
        load_lines(term.b, from_b + k * term.b.depth, args.columns - column0, term.depth - k, b);
        __syncthreads();
        sums.add(a, b, tile_depth);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::int64_t row = row0 + tile_sums::row() + i;
    if (row >= args.rows) continue;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const std::int64_t column = column0 + tile_sums::column() + j;
      if (column >= args.columns) continue;
      prim::cuda::put_number(
          args.to, args.to_type,
          outer * args.to_outer + inner * args.to_inner + row * args.to_row + column,
          sums.at[i][j]);
    }
  }
}

}  // namespace tessera::kernels::latent_attention::sm80
