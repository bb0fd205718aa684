// Attention of any type and size: a block of 64 query rows goes along its keys, or a split of them.
//
//   for each tile of keys { scores; logits; running softmax; sums += weights V }
//
// Sums of weighted values lie in the workspace, row by row, since values may have any number of
// columns. `combine_splits` makes outputs of them.
#pragma once

#include <cstdint>

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

template <int Threads>
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
  std::int64_t to[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int r = tile_sums::row() + i;
    to[i] = r < rows.count ? rows.number(args, r) * args.value : no_row;
  }
  bool begin = true;

  const prim::key_interval keys = keys_of_split(args, rows, results, split);
  for (std::int64_t key0 = keys.begin; key0 < keys.end; key0 += tile_side) {
    if (!lists_some(args, expanded, rows, key0)) continue;
    place_keys(args, expanded, rows, key0, keys.end, memory);
    tile_sums scores;
    multiply_scores(of, memory, scores);
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

    const int count = static_cast<int>(keys.end - key0 < tile_side ? keys.end - key0 : tile_side);
    for (std::int64_t column = 0; column < args.value; column += tile_side) {
      tile_sums weighted;
      multiply_across(memory.weights, of.v, count, column, false, memory.b, weighted);
      add_to_rows(sums, to, args.value, column, begin, factor, weighted);
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

/// Sums of all splits become a row of out. A warp for each row of the launch; rows of no sequence
/// are zeros.
template <int Threads>
__global__ void __launch_bounds__(Threads)
    combine_splits(const __grid_constant__ latent_attention_kernel_args args,
                   const split_results results) {
  const std::int64_t row = std::int64_t{blockIdx.x} * (Threads / 32) + threadIdx.x / 32;
  if (row >= results.rows) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t head = row % args.heads;
  const bool packed = args.cu_seqlens_q != nullptr;
  const std::int64_t entry = packed ? 0 : row / args.heads / args.length;
  const std::int64_t token = packed ? row / args.heads : row / args.heads % args.length;
  const std::int64_t to = args.out.at(entry, token, head);

  prim::softmax_result result;
  float maximum = prim::minus_infinity;
  const bool is_row = token < end_of_tokens(args);
  const auto state_of = [&](std::int64_t split) {
    return results.states[split * results.rows + row];
  };
  const auto factor_of = [&](const prim::softmax_state& state) {
    return state.maximum == maximum ? 1.0f
                                    : exponential(state.maximum - prim::finite_maximum(maximum));
  };
  if (is_row) {
    prim::softmax_state all;
    for (std::int64_t split = 0; split < results.splits; ++split) {
      maximum = fmaxf(maximum, state_of(split).maximum);
    }
    for (std::int64_t split = 0; split < results.splits; ++split) {
      const prim::softmax_state state = state_of(split);
      if (state.denominator == 0.0f) continue;
      all.denominator = fmaf(state.denominator, factor_of(state), all.denominator);
    }
    all.maximum = maximum;
    result = prim::finish_row(all, args.sinks + head * args.sink_head_stride,
                              static_cast<int>(args.sink_count), args.sink_stride, true);
  }
  if (lane == 0 && args.lse.data != nullptr) {
    args.lse.data[entry * args.lse.batch + head * args.lse.head + token * args.lse.row] =
        result.lse;
  }
  for (std::int64_t c = lane; c < args.value; c += 32) {
    float sum = 0;
    for (std::int64_t split = 0; is_row && split < results.splits; ++split) {
      const prim::softmax_state state = state_of(split);
      if (state.denominator == 0.0f) continue;
      sum =
          fmaf(factor_of(state), results.sums[(split * results.rows + row) * args.value + c], sum);
    }
    const float scale = result.scale * args.out_factor;
    prim::cuda::put_number(args.out.data, args.out.type, to + c,
                           scale == 0.0f ? 0.0f : sum * scale);
  }
}

}  // namespace tessera::kernels::latent_attention::sm80
