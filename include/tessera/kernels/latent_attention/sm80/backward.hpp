// Gradients of attention on expanded latents, of any type and size, in two passes over the scores:
//
//   for each tile of keys { for each block of rows { d_v += P^T d_out; d_k += d_s^T Q } }
//   for each block of rows { for each tile of keys { d_q += d_s K } }
//
// Nobody adds to what others add to, so the bits of a launch are always the same. Sums lie in the
// workspace, row by row; those of keys and values become those of latents and weights by products.
#pragma once

#include <cstdint>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/latent_attention/sm80/float_tile.hpp>
#include <tessera/kernels/latent_attention/sm80/gradient_tile.hpp>
#include <tessera/kernels/latent_attention/sm80/score_tile.hpp>
#include <tessera/kernels/latent_attention/sm80/sequences.hpp>
#include <tessera/prim/cuda/numbers.hpp>

namespace tessera::kernels::latent_attention::sm80 {

/// Adds a times the columns of b to rows of sums.
__device__ __forceinline__ void add_product(const score_tile_memory& a, const tile_rows& b,
                                            int count, float* to, const std::int64_t* at,
                                            bool begin, float_tile& b_tile) {
  constexpr float ones[4] = {1, 1, 1, 1};
  for (std::int64_t column = 0; column < b.columns; column += tile_side) {
    tile_sums product;
    multiply_across(a, b, count, column, true, b_tile, product);
    add_to_rows(to, at, b.columns, column, begin, ones, product);
  }
}

/// A block for each pair and tile of keys: d_keys and d_values.
template <int Threads>
__global__ void __launch_bounds__(Threads, 1)
    key_gradients(const __grid_constant__ latent_attention_kernel_args args,
                  const __grid_constant__ expanded_keys expanded, const gradient_sums sums) {
  static_assert(Threads == tile_threads);
  __shared__ tile_memory memory;
  const std::int64_t tiles = ceil_div(args.length, tile_side), pair = blockIdx.x / tiles;
  const std::int64_t key0 = blockIdx.x % tiles * tile_side, group = args.heads / args.kv_heads;
  const std::int64_t left = args.length - key0;
  row_block rows{.seq = sequence_of(args, pair / args.kv_heads),
                 .kv_head = pair % args.kv_heads,
                 .first_head = pair % args.kv_heads * group,
                 .group = group};
  const tile_operands of = operands_of(args, expanded, memory);
  place_keys(args, expanded, rows, key0, args.length, memory);
  const std::int64_t width = args.nope + args.rope;
  std::int64_t to_key[4], to_value[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int c = tile_sums::row() + i;
    const std::int64_t row = pair * args.length + key0 + c;
    to_key[i] = c < left ? row * width : no_row;
    to_value[i] = c < left ? row * args.value : no_row;
  }
  bool begin = true;

  for (rows.first = 0; rows.first < args.length * group; rows.first += tile_side) {
    rows.count = static_cast<int>(clipped(args.length * group - rows.first, tile_side));
    const prim::key_interval seen = rows.keys_of_some(args);
    if (seen.end <= key0 || seen.begin >= key0 + tile_side) continue;
    if (!lists_some(args, expanded, rows, key0)) continue;
    place_rows(args, rows, memory);
    gradient_tile tile = gradient_of(args, expanded, sums, rows, key0, memory);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float(&x)[4] = tile.weights.at[i];
      *reinterpret_cast<float4*>(&memory.weights[tile_sums::row() + i][tile_sums::column()]) =
          make_float4(x[0], x[1], x[2], x[3]);
    }
    add_product(memory.weights, of.d_out, rows.count, sums.d_values, to_value, begin, memory.b);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float(&x)[4] = tile.d_scores.at[i];
      const float(&slope)[4] = tile.slopes[i];
      *reinterpret_cast<float4*>(&memory.weights[tile_sums::row() + i][tile_sums::column()]) =
          make_float4(x[0] * slope[0], x[1] * slope[1], x[2] * slope[2], x[3] * slope[3]);
    }
    add_product(memory.weights, of.q, rows.count, sums.d_keys, to_key, begin, memory.b);
    add_product(memory.weights, of.q_pe, rows.count, sums.d_keys + args.nope, to_key, begin,
                memory.b);
    begin = false;
  }
  if (!begin) return;
  // Nobody sees a key of the tile.
  add_product(memory.weights, of.d_out, 0, sums.d_values, to_value, true, memory.b);
  add_product(memory.weights, of.q, 0, sums.d_keys, to_key, true, memory.b);
  add_product(memory.weights, of.q_pe, 0, sums.d_keys + args.nope, to_key, true, memory.b);
}

/// A block for each block of rows: d_q.
template <int Threads>
__global__ void __launch_bounds__(Threads, 1)
    query_gradients(const __grid_constant__ latent_attention_kernel_args args,
                    const __grid_constant__ expanded_keys expanded, const gradient_sums sums) {
  static_assert(Threads == tile_threads);
  __shared__ tile_memory memory;
  const row_block rows = row_block_of(args, nullptr, blockIdx.x, tile_side);
  if (rows.count == 0) return;
  const tile_operands of = operands_of(args, expanded, memory);
  place_rows(args, rows, memory);
  std::int64_t to[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int r = tile_sums::row() + i;
    to[i] = r < rows.count ? rows.number(args, r) * (args.nope + args.rope) : no_row;
  }
  bool begin = true;

  const prim::key_interval keys = rows.keys_of_some(args);
  for (std::int64_t key0 = keys.begin / tile_side * tile_side; key0 < keys.end; key0 += tile_side) {
    if (!lists_some(args, expanded, rows, key0)) continue;
    place_keys(args, expanded, rows, key0, args.length, memory);
    const gradient_tile tile = gradient_of(args, expanded, sums, rows, key0, memory);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const auto d_product = [&](int i) { return tile.d_scores.at[i][j] * tile.slopes[i][j]; };
      *reinterpret_cast<float4*>(&memory.weights[tile_sums::column() + j][tile_sums::row()]) =
          make_float4(d_product(0), d_product(1), d_product(2), d_product(3));
    }
    const int count = static_cast<int>(clipped(args.length - key0, tile_side));
    add_product(memory.weights, of.k, count, sums.d_q, to, begin, memory.b);
    add_product(memory.weights, of.k_pe, count, sums.d_q + args.nope, to, begin, memory.b);
    begin = false;
  }
  if (!begin) return;
  // The rows see nothing.
  add_product(memory.weights, of.k, 0, sums.d_q, to, true, memory.b);
  add_product(memory.weights, of.k_pe, 0, sums.d_q + args.nope, to, true, memory.b);
}

/// A block for each token: d_q, and the rope parts that several heads share.
template <int Threads>
__global__ void __launch_bounds__(Threads)
    store_tokens(const __grid_constant__ latent_attention_kernel_args args,
                 const gradient_sums sums) {
  const std::int64_t number = blockIdx.x, width = args.nope + args.rope;
  const std::int64_t entry = number / args.length, token = number % args.length;
  const float* const d_q = sums.d_q + number * args.heads * width;
  for (std::int64_t at = threadIdx.x; at < args.heads * args.nope; at += Threads) {
    const std::int64_t head = at / args.nope, c = at % args.nope;
    prim::cuda::put_number(args.d_q.data, args.d_q.type, args.d_q.at(entry, token, head) + c,
                           d_q[head * width + c]);
  }
  if (args.rope == 0) return;
  for (std::int64_t at = threadIdx.x; !args.shared_rope && at < args.heads * args.rope;
       at += Threads) {
    const std::int64_t head = at / args.rope, c = at % args.rope;
    prim::cuda::put_number(args.d_q_pe.data, args.d_q_pe.type,
                           args.d_q_pe.at(entry, token, head) + c,
                           d_q[head * width + args.nope + c]);
  }
  for (std::int64_t c = threadIdx.x; c < args.rope; c += Threads) {
    float sum = 0;
    for (std::int64_t kv_head = 0; kv_head < args.kv_heads; ++kv_head) {
      const std::int64_t key = (entry * args.kv_heads + kv_head) * args.length + token;
      sum += sums.d_keys[key * width + args.nope + c];
    }
    prim::cuda::put_number(args.d_k_pe.data, args.d_k_pe.type, args.d_k_pe.at(entry, token) + c,
                           sum);
    if (!args.shared_rope) continue;
    sum = 0;
    for (std::int64_t head = 0; head < args.heads; ++head) sum += d_q[head * width + args.nope + c];
    prim::cuda::put_number(args.d_q_pe.data, args.d_q_pe.type, args.d_q_pe.at(entry, token) + c,
                           sum);
  }
}

}  // namespace tessera::kernels::latent_attention::sm80
