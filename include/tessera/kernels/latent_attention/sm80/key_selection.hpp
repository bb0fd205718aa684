// Which keys each token sees, a bit for each: those of a list that is given, or those that an
// indexer scores highest.
//
//   for each token of a block {
//     for each tile of keys { for each 64 index heads { products; scores += weights relu(products)
//     } } the k-th largest score, digit by digit; keys above it, then the first of those that equal
//     it
//   }
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/latent_attention/sm80/float_tile.hpp>
#include <tessera/kernels/latent_attention/sm80/sequences.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::latent_attention::sm80 {

/// What a selection writes, and where it computes scores.
struct selection_memory {
  std::uint32_t* listed = nullptr;  ///< [tokens][words]
  std::int64_t words = 0;
  std::uint32_t* scores = nullptr;  ///< [blocks][length rounded up], in an order of integers
  std::int64_t score_row = 0;
  std::int64_t blocks = 0;

  /// Blocks stay for the launch: each has one row of scores for all its tokens.
  static std::int64_t blocks_of(const latent_attention_kernel_args& args, int multiprocessors) {
    return std::min(args.entries * args.length, std::int64_t{4} * multiprocessors);
  }
};

/// Larger floats are larger integers; both zeros are one, NaN is -inf.
__device__ __forceinline__ std::uint32_t ordered(float x) {
  if (x != x) x = -INFINITY;
  const std::uint32_t bits = __float_as_uint(x + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// Shared memory of a block.
struct selection_tile {
  std::int64_t q[tile_side], k[tile_side];
  float weights[tile_side];
  float_tile a, b;
  float parts[16][tile_side];  ///< sums over four heads each
  std::uint32_t histogram[256];
  std::uint32_t digit, left;
  std::uint32_t equal[tile_threads / 32], kept[tile_threads / 32];
};

/// Scores of a token for the keys [0, keys).
__device__ __forceinline__ void score_keys(const latent_attention_kernel_args& args,
                                           std::int64_t entry, std::int64_t token,
                                           std::int64_t keys, std::uint32_t* scores,
                                           selection_tile& tile) {
  const key_indexer& of = args.indexer;
  const int thread = static_cast<int>(threadIdx.x);
  const tile_rows q{of.q.data, of.q.type, tile.q, of.width},
      k{of.k.data, of.k.type, tile.k, of.width};
  for (std::int64_t key0 = 0; key0 < keys; key0 += tile_side) {
    float score = 0;
    for (std::int64_t head0 = 0; head0 < of.heads; head0 += tile_side) {
      __syncthreads();
      if (thread < tile_side) {
        const std::int64_t head = head0 + thread, key = key0 + thread;
        const bool held = head < of.heads;
        tile.q[thread] = held ? of.q.at(entry, token, head) : no_row;
        tile.k[thread] = key < keys ? of.k.at(entry, key) : no_row;
        tile.weights[thread] = held ? prim::cuda::number_at(of.weights.data, of.weights.type,
                                                            of.weights.at(entry, token) + head)
                                    : 0.0f;
      }
      tile_sums products;
      multiply_along(q, k, tile.a, tile.b, products);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sum = fmaf(tile.weights[tile_sums::row() + i], fmaxf(of.sign * products.at[i][j], 0.0f),
                     sum);
        }
        tile.parts[tile_sums::row() / 4][tile_sums::column() + j] = sum;
      }
      __syncthreads();
      if (thread < tile_side) {
        for (const auto& part : tile.parts) score += part[thread];
      }
    }
    if (thread < tile_side && key0 + thread < keys) scores[key0 + thread] = ordered(score);
  }
  __syncthreads();
}

/// Inclusive sum of a flag over the threads of a block that are before this one or are it, and the
/// sum of all. `parts`: shared, a word for each warp. Holds two barriers.
__device__ __forceinline__ std::uint32_t rank_of(bool flag, std::uint32_t* parts,
                                                 std::uint32_t& all) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const std::uint32_t votes = __ballot_sync(prim::cuda::all_lanes, flag);
  __syncthreads();
  if (lane == 0) parts[warp] = static_cast<std::uint32_t>(__popc(votes));
  __syncthreads();
  std::uint32_t before = 0;
  all = 0;
  for (unsigned w = 0; w < tile_threads / 32; ++w) {
    if (w < warp) before += parts[w];
    all += parts[w];
  }
  return before + static_cast<std::uint32_t>(__popc(votes & ((2u << lane) - 1u)));
}

/// The `kept`-th largest of `keys` scores; `left` becomes how many of those that equal it are kept.
__device__ __forceinline__ std::uint32_t threshold_of(const std::uint32_t* scores,
                                                      std::int64_t keys, std::int64_t kept,
                                                      selection_tile& tile, std::uint32_t& left) {
  const int thread = static_cast<int>(threadIdx.x);
  std::uint32_t prefix = 0, mask = 0;
  left = static_cast<std::uint32_t>(kept);
  for (int shift = 24; shift >= 0; shift -= 8) {
    tile.histogram[thread] = 0;
    __syncthreads();
    for (std::int64_t key = thread; key < keys; key += tile_threads) {
      const std::uint32_t score = scores[key];
      if ((score & mask) == prefix) atomicAdd(&tile.histogram[score >> shift & 255u], 1u);
    }
    __syncthreads();
    if (thread == 0) {
      std::uint32_t above = 0, digit = 255;
      while (digit > 0 && above + tile.histogram[digit] < left) above += tile.histogram[digit--];
      tile.digit = digit;
      tile.left = left - above;
    }
    __syncthreads();
    prefix |= tile.digit << shift;
    mask |= 255u << shift;
    left = tile.left;
  }
  return prefix;
}

/// Keeps the largest scores of a token, of equal ones the first.
__device__ __forceinline__ void keep_largest(const latent_attention_kernel_args& args,
                                             std::int64_t entry, std::int64_t token,
                                             std::int64_t keys, const std::uint32_t* scores,
                                             std::uint32_t* words, std::int64_t word_count,
                                             selection_tile& tile) {
  const key_indexer& of = args.indexer;
  const std::int64_t kept = of.topk < keys ? of.topk : keys;
  std::uint32_t left = 0;
  const std::uint32_t least = kept < keys ? threshold_of(scores, keys, kept, tile, left) : 0;
  std::int32_t* const slots = of.selected.data != nullptr ? of.selected.at(entry, token) : nullptr;
  std::int64_t count = 0;
  for (std::int64_t key0 = 0; key0 < word_count * 32; key0 += tile_threads) {
    const std::int64_t key = key0 + threadIdx.x;
    const std::uint32_t score = key < keys ? scores[key] : 0;
    std::uint32_t equals = 0, takes = 0;
    const bool equal = key < keys && kept < keys && score == least;
    const std::uint32_t rank = rank_of(equal, tile.equal, equals);
    const bool large = key < keys && (kept == keys || score > least || (equal && rank <= left));
    const bool taken = large || (of.force_self && key == token);
    const std::uint32_t place = rank_of(taken, tile.kept, takes);
    const std::uint32_t votes = __ballot_sync(prim::cuda::all_lanes, taken);
    if (threadIdx.x % 32 == 0 && key < word_count * 32) words[key / 32] = votes;
    if (slots != nullptr && taken && count + place <= of.slots) {
      slots[(count + place - 1) * of.selected.slot] = static_cast<std::int32_t>(key);
    }
    left -= equals < left ? equals : left;
    count += takes;
  }
  for (std::int64_t s = count + threadIdx.x; slots != nullptr && s < of.slots; s += tile_threads) {
    slots[s * of.selected.slot] = -1;
  }
}

/// Marks the keys of the list that is given for a token.
__device__ __forceinline__ void mark_given(const latent_attention_kernel_args& args,
                                           std::int64_t entry, std::int64_t token,
                                           std::int64_t keys, std::uint32_t* words,
                                           std::int64_t word_count) {
  const key_indexer& of = args.indexer;
  for (std::int64_t w = threadIdx.x; w < word_count; w += tile_threads) words[w] = 0;
  __syncthreads();
  const std::int32_t* const from = of.given.at(entry, token);
  for (std::int64_t s = threadIdx.x; s < of.slots; s += tile_threads) {
    const std::int32_t key = from[s * of.given.slot];
    if (key >= 0 && key < keys) atomicOr(&words[key / 32], 1u << (key % 32));
  }
}

template <int Threads>
__global__ void __launch_bounds__(Threads)
    select_keys(const __grid_constant__ latent_attention_kernel_args args,
                const selection_memory memory) {
  static_assert(Threads == tile_threads);
  __shared__ selection_tile tile;
  const std::int64_t tokens = args.entries * args.length;
  std::uint32_t* const scores = memory.scores + blockIdx.x * memory.score_row;
  for (std::int64_t number = blockIdx.x; number < tokens; number += gridDim.x) {
    const std::int64_t entry = number / args.length, token = number % args.length;
    const std::int64_t keys = args.causal ? token + 1 : args.length;
    std::uint32_t* const words = memory.listed + number * memory.words;
    if (args.indexer.given.data != nullptr) {
      mark_given(args, entry, token, keys, words, memory.words);
      continue;
    }
    if (args.indexer.topk < keys) score_keys(args, entry, token, keys, scores, tile);
    keep_largest(args, entry, token, keys, scores, words, memory.words, tile);
  }
}

}  // namespace tessera::kernels::latent_attention::sm80
