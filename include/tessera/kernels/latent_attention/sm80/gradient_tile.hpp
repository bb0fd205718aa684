// A block of query rows against a tile of keys, backwards: weights again from lse, and gradients of
// scores.
#pragma once

#include <cstdint>
#include <limits>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/latent_attention/sm80/float_tile.hpp>
#include <tessera/kernels/latent_attention/sm80/score_tile.hpp>
#include <tessera/kernels/latent_attention/sm80/sequences.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/numbers.hpp>

namespace tessera::kernels::latent_attention::sm80 {

/// What a gradient launch has in its workspace besides keys and values.
struct gradient_sums {
  float2* rows = nullptr;   ///< of each query row what is subtracted from gradients of weights, and
                            ///< 0, or NaN where d_out has elements that are not finite
  float* d_q = nullptr;     ///< [rows][nope + rope]
  float* d_keys = nullptr;  ///< [pairs][length][nope + rope]
  float* d_values = nullptr;  ///< [pairs][length][value]
};

/// A warp for each row: sum of d_out out - d_lse, 0 where it sees nothing.
template <int Threads>
__global__ void __launch_bounds__(Threads)
    correct_rows(const __grid_constant__ latent_attention_kernel_args args,
                 const gradient_sums sums) {
  const std::int64_t row = std::int64_t{blockIdx.x} * (Threads / 32) + threadIdx.x / 32;
  if (row >= args.entries * args.length * args.heads) return;
  const std::int64_t head = row % args.heads, number = row / args.heads;
  const std::int64_t entry = number / args.length, token = number % args.length;
  const auto of = [&](const row_statistics& from) {
    return from.data[entry * from.batch + head * from.head + token * from.row];
  };
  float sum = 0, taint = 0;
  if (of(args.lse) != prim::minus_infinity) {
    const std::int64_t out = args.out.at(entry, token, head),
                       d_out = args.d_out.at(entry, token, head);
    for (std::int64_t c = threadIdx.x % 32; c < args.value; c += 32) {
      const float d = prim::cuda::number_at(args.d_out.data, args.d_out.type, d_out + c);
      if (!is_finite(d)) taint = std::numeric_limits<float>::quiet_NaN();
      sum = fmaf(d, prim::cuda::number_at(args.out.data, args.out.type, out + c), sum);
    }
    sum = prim::cuda::sum_of_warp(sum);
    taint = prim::cuda::sum_of_warp(taint);
    if (args.d_lse.data != nullptr) sum -= of(args.d_lse);
  }
  if (threadIdx.x % 32 == 0) sums.rows[row] = make_float2(sum, taint);
}

/// Of the pairs of a thread.
struct gradient_tile {
  tile_sums weights{};   ///< and NaN where d_out has some
  tile_sums d_scores{};  ///< of logits
  float slopes[4][4];    ///< what makes gradients of products of them; 0 where a key is hidden
};

/// The derivative of the cap at x = cap u is 1 - tanh(u)^2: 4 e / (1 + e)^2 with e = exp(-2 |u|),
/// which keeps its digits where tanh is nearly 1.
__device__ __forceinline__ float slope_of_cap(float u) {
  const float e = exponential(-2.0f * fabsf(u));
  return 4.0f * e / ((1.0f + e) * (1.0f + e));
}

/// Rows and keys have their places in `memory`.
__device__ __forceinline__ gradient_tile gradient_of(const latent_attention_kernel_args& args,
                                                     const expanded_keys& expanded,
                                                     const gradient_sums& sums,
                                                     const row_block& rows, std::int64_t key0,
                                                     tile_memory& memory) {
  const tile_operands of = operands_of(args, expanded, memory);
  gradient_tile made;
  multiply_along(of.d_out, of.v, memory.a, memory.b, made.d_scores);
  multiply_scores(of, memory, made.weights);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float u = made.weights.at[i][j] * (args.softmax_scale / args.soft_cap);
      made.slopes[i][j] = args.softmax_scale * (args.soft_cap > 0 ? slope_of_cap(u) : 1.0f);
    }
  }
  score_mod(args, expanded, rows).apply(key0, made.weights);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int r = tile_sums::row() + i;
    const bool held = r < rows.count;
    const float shift = held ? lse_of(args, rows, r) : prim::minus_infinity;
    const float2 row = held ? sums.rows[rows.number(args, r)] : float2{};
    float kept[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    if (args.dropout) {
      const float4 four = kept_weights(args, rows, r, key0, args.out_factor);
      kept[0] = four.x, kept[1] = four.y, kept[2] = four.z, kept[3] = four.w;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float& weight = made.weights.at[i][j];
      float& d_score = made.d_scores.at[i][j];
      if (shift == prim::minus_infinity || weight == prim::minus_infinity) {
        weight = d_score = made.slopes[i][j] = 0.0f;
        continue;
      }
      const float w = exponential(weight - shift);
      d_score = w * (kept[j] * d_score - row.x);
      weight = fmaf(w, kept[j], row.y);
    }
  }
  return made;
}

}  // namespace tessera::kernels::latent_attention::sm80
