// Attention of any type and size: a block of 64 query rows goes along its keys, or a split of them.
//
//   for each tile of keys { scores; logits; running softmax; sums += weights V }
//
// Sums of weighted values lie in the workspace, row by row, since values may have any number of
// columns. `combine_splits` makes outputs of them.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/latent_attention/sm80/float_tile.hpp>
#include <tessera/kernels/latent_attention/sm80/score_tile.hpp>
#include <tessera/kernels/latent_attention/sm80/sequences.hpp>
#include <tessera/prim/common/online_softmax.hpp>

namespace tessera::kernels::latent_attention::sm80 {

/// What the splits of the keys have of each row: [splits][rows], and value columns of each.
struct split_results {
  float* sums = nullptr;  ///< of exp(s - maximum) v
  prim::softmax_state* states = nullptr;
  std::int64_t splits = 1;
  std::int64_t rows = 0;           ///< of the launch
  std::int64_t keys_of_split = 0;  ///< a multiple of the keys of a tile
};

/// The keys of a split that a block of rows sees, from the beginning of a tile on.
__device__ __forceinline__ prim::key_interval keys_of_split(
    const latent_attention_kernel_args& args, const row_block& rows, const split_results& results,
    std::int64_t split) {
  const std::int64_t begin = split * results.keys_of_split;
  prim::key_interval keys = prim::intersection(
      rows.keys_of_some(args),
      {begin, split + 1 == results.splits ? INT64_MAX : begin + results.keys_of_split});
  keys.begin = keys.begin / tile_side * tile_side;
  return keys;
}

/// `Coded`: latents in pages have 8 bits, or scales.
template <int Threads, bool Coded>
__global__ void __launch_bounds__(Threads, 2)
    attend_rows(const __grid_constant__ latent_attention_kernel_args args,
                const __grid_constant__ expanded_keys expanded, const std::int64_t* starts,
                const split_results results) {
  static_assert(Threads == tile_threads);
  __shared__ tile_memory memory;
  const row_block rows = row_block_of(args, starts, blockIdx.x / results.splits, tile_side);
  if (rows.count == 0) return;
  const std::int64_t split = blockIdx.x % results.splits, first_row = split * results.rows;
  place_rows(args, rows, memory);
  const tile_operands of = operands_of(args, expanded, memory);
  const score_mod mod(args, expanded, rows);
  float* const sums = results.sums + first_row * args.value;
  prim::softmax_state states[4];
  __shared__ std::int64_t to[tile_side];
  if (threadIdx.x < tile_side) {
    const int r = static_cast<int>(threadIdx.x);
    to[r] = r < rows.count ? rows.number(args, r) * args.value : no_row;
  }
  bool begin = true;

  const prim::key_interval keys = keys_of_split(args, rows, results, split);
  for (std::int64_t key0 = keys.begin; key0 < keys.end; key0 += tile_side) {
    if (!lists_some(args, expanded, rows, key0)) continue;
    place_keys(args, expanded, rows, key0, keys.end, memory);
    tile_sums scores;
    multiply_scores<Coded>(of, memory, scores);
    mod.apply(key0, scores);

    float factor[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float(&of_row)[4] = scores.at[i];
      const float of_tile =
          maximum_of_row(fmaxf(fmaxf(of_row[0], of_row[1]), fmaxf(of_row[2], of_row[3])));
      const float before = states[i].maximum, maximum = fmaxf(before, of_tile);
      const float shift = prim::finite_maximum(maximum);
      float sum = 0;
#pragma unroll
      for (float& x : of_row) {
        x = exponential(x - shift);
        sum += x;
      }
      factor[i] = before == maximum ? 1.0f : exponential(before - shift);
      states[i] = {maximum, fmaf(states[i].denominator, factor[i], sum_of_row(sum))};
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      *reinterpret_cast<float4*>(&memory.weights[tile_sums::column() + j][tile_sums::row()]) =
          make_float4(scores.at[0][j], scores.at[1][j], scores.at[2][j], scores.at[3][j]);
    }
    if (args.dropout) {
      // In their place in memory: registers are for sums.
#pragma unroll 1
      for (int r = tile_sums::row(); r < tile_sums::row() + 4; ++r) {
        const float4 kept = kept_weights(args, rows, r, key0, 1.0f);
        float(*const weights)[tile_stride] = memory.weights + tile_sums::column();
        weights[0][r] *= kept.x;
        weights[1][r] *= kept.y;
        weights[2][r] *= kept.z;
        weights[3][r] *= kept.w;
      }
    }

    const int count = static_cast<int>(keys.end - key0 < tile_side ? keys.end - key0 : tile_side);
    for (std::int64_t column = 0; column < args.value; column += tile_side) {
      tile_sums weighted;
      multiply_across<Coded>(memory.weights, of.v, count, column, false, memory.b, weighted);
      add_to_rows(sums, to + tile_sums::row(), args.value, column, begin, factor, weighted);
    }
    begin = false;
  }

  if (threadIdx.x % 16 != 0) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int r = tile_sums::row() + i;
    if (r < rows.count) results.states[first_row + rows.number(args, r)] = states[i];
  }
}

/// Most splits of a launch.
inline constexpr int most_splits = 64;

/// Splits whose sums are asked for at the same time.
inline constexpr int splits_together = 8;

/// Sums of all splits become a row of out. A block for each row of the launch; rows of no sequence
/// are zeros.
template <int Threads>
__global__ void __launch_bounds__(Threads)
    combine_splits(const __grid_constant__ latent_attention_kernel_args args,
                   const split_results results) {
  static_assert(Threads >= most_splits);
  __shared__ float maxima[most_splits], factors[most_splits], denominators[most_splits];
  const std::int64_t row = blockIdx.x, head = row % args.heads, number = row / args.heads;
  const bool packed = args.cu_seqlens_q != nullptr;
  const std::int64_t entry = packed ? 0 : number / args.length;
  const std::int64_t token = packed ? number : number % args.length;
  const int splits = token < end_of_tokens(args) ? static_cast<int>(results.splits) : 0;
  const int thread = static_cast<int>(threadIdx.x);

  prim::softmax_state own;
  if (thread < splits) own = results.states[thread * results.rows + row];
  if (thread < most_splits) maxima[thread] = own.maximum;
  __syncthreads();
  prim::softmax_state all;
  for (int split = 0; split < splits; ++split) all.maximum = fmaxf(all.maximum, maxima[split]);
  // A split without weights is not looked at.
  const float factor = own.maximum == all.maximum
                           ? 1.0f
                           : exponential(own.maximum - prim::finite_maximum(all.maximum));
  if (thread < most_splits) {
    factors[thread] = own.denominator == 0.0f ? 0.0f : factor;
    denominators[thread] = own.denominator == 0.0f ? 0.0f : own.denominator * factor;
  }
  __syncthreads();
  for (int split = 0; split < splits; ++split) all.denominator += denominators[split];
  const prim::softmax_result result =
      splits == 0 ? prim::softmax_result{}
                  : prim::finish_row(all, args.sinks + head * args.sink_head_stride,
                                     static_cast<int>(args.sink_count), args.sink_stride, true);
  if (thread == 0 && args.lse.data != nullptr) {
    args.lse.data[entry * args.lse.batch + head * args.lse.head + token * args.lse.row] =
        result.lse;
  }
  const std::int64_t to = args.out.at(entry, token, head);
  const float scale = result.scale * args.out_factor;
  const auto add_up = [&]<int Width>(std::integral_constant<int, Width>) {
    for (std::int64_t c = std::int64_t{thread} * Width; c < args.value; c += Threads * Width) {
      float sums[Width] = {};
      for (int first = 0; first < splits; first += splits_together) {
        float of_splits[splits_together][Width] = {};
#pragma unroll
        for (int i = 0; i < splits_together; ++i) {
          const int split = first + i;
          if (split >= splits || factors[split] == 0.0f) continue;
          const float* const from = results.sums + (split * results.rows + row) * args.value + c;
          if constexpr (Width == 4) {
            const float4 four = *reinterpret_cast<const float4*>(from);
            of_splits[i][0] = four.x;
            of_splits[i][1] = four.y;
            of_splits[i][2] = four.z;
            of_splits[i][3] = four.w;
          } else {
            of_splits[i][0] = *from;
          }
        }
#pragma unroll
        for (int i = 0; i < splits_together; ++i) {
          const float factor = first + i < splits ? factors[first + i] : 0.0f;
#pragma unroll
          for (int k = 0; k < Width; ++k) sums[k] = fmaf(factor, of_splits[i][k], sums[k]);
        }
      }
#pragma unroll
      for (int i = 0; i < Width; ++i) {
        prim::cuda::put_number(args.out.data, args.out.type, to + c + i,
                               scale == 0.0f ? 0.0f : sums[i] * scale);
      }
    }
  };
  // Neighbours together: one wait for all splits' sums instead of one for each of them.
  if (args.value % 4 == 0) {
    add_up(std::integral_constant<int, 4>{});
  } else {
    add_up(std::integral_constant<int, 1>{});
  }
}

}  // namespace tessera::kernels::latent_attention::sm80
