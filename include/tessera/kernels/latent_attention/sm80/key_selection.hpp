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
#include <tessera/prim/cuda/code_words.hpp>
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

/// Whether queries and keys of an indexer have 8 bits.
__host__ __device__ constexpr bool is_coded(const key_indexer& of) noexcept {
  return prim::cuda::is_code_type(of.q.type);
}
/// What products of a token and index head count, above 0.
__device__ __forceinline__ float index_weight(const key_indexer& of, std::int64_t entry,
                                              std::int64_t token, std::int64_t head) {
  const float weight =
      prim::cuda::number_at(of.weights.data, of.weights.type, of.weights.at(entry, token) + head);
  return of.q_scale.data == nullptr
             ? weight
             : weight *
                   static_cast<const float*>(of.q_scale.data)[of.q_scale.at(entry, token, head)];
}
/// The factor of all scores of a key.
__device__ __forceinline__ float index_key_scale(const key_indexer& of, std::int64_t entry,
                                                 std::int64_t key) {
  return of.k_scale.data == nullptr
             ? 1.0f
             : static_cast<const float*>(of.k_scale.data)[of.k_scale.at(entry, key)];
}

/// Shared memory of a block.
struct selection_tile {
  std::int64_t q[tile_side], k[tile_side];
  float weights[tile_side];
  float_tile a, b;
  float parts[16][tile_side];  ///< sums over four heads each
  std::uint32_t histogram[256];
  std::uint32_t digit, left, equals;
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
        tile.weights[thread] = held ? index_weight(of, entry, token, head) : 0.0f;
      }
      tile_sums products;
      if (is_coded(of)) {
        multiply_along<true>(q, k, tile.a, tile.b, products);
      } else {
        multiply_along(q, k, tile.a, tile.b, products);
      }
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
    if (thread < tile_side && key0 + thread < keys) {
      scores[key0 + thread] = ordered(score * index_key_scale(of, entry, key0 + thread));
    }
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

/// The digit of the `left`-th largest of those in the histogram, how many are left among those that
/// have it, and how many these are. By one warp, whose lanes have eight digits each, from above.
__device__ __forceinline__ void find_digit(selection_tile& tile, std::uint32_t left) {
  constexpr int digits = 256 / prim::cuda::warp_size;
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  const int highest = 255 - lane * digits;
  int own = 0;
#pragma unroll
  for (int i = 0; i < digits; ++i) own += static_cast<int>(tile.histogram[highest - i]);
  auto above = static_cast<std::uint32_t>(prim::cuda::inclusive_sum_of_warp(own, lane) - own);
  if (above >= left || above + static_cast<std::uint32_t>(own) < left) return;
  int digit = highest;
  while (above + tile.histogram[digit] < left) above += tile.histogram[digit--];
  tile.digit = static_cast<std::uint32_t>(digit);
  tile.left = left - above;
  tile.equals = tile.histogram[digit];
}

/// The `kept`-th largest of `keys` scores, fewer than there are; `left` becomes how many of those
/// that equal it are kept, `equals` how many there are.
__device__ __forceinline__ std::uint32_t threshold_of(const std::uint32_t* scores,
                                                      std::int64_t keys, std::int64_t kept,
                                                      selection_tile& tile, std::uint32_t& left,
                                                      std::uint32_t& equals) {
  constexpr int together = 4;  // loads under way
  const int thread = static_cast<int>(threadIdx.x);
  std::uint32_t prefix = 0, mask = 0;
  left = static_cast<std::uint32_t>(kept);
  for (int shift = 24; shift >= 0; shift -= 8) {
    tile.histogram[thread] = 0;
    __syncthreads();
    for (std::int64_t first = thread; first < keys; first += together * tile_threads) {
      std::uint32_t score[together];
#pragma unroll
      for (int i = 0; i < together; ++i) {
        const std::int64_t key = first + i * tile_threads;
        score[i] = scores[key < keys ? key : first];
      }
#pragma unroll
      for (int i = 0; i < together; ++i) {
        if (first + i * tile_threads < keys && (score[i] & mask) == prefix) {
          atomicAdd(&tile.histogram[score[i] >> shift & 255u], 1u);
        }
      }
    }
    __syncthreads();
    if (thread < prim::cuda::warp_size) find_digit(tile, left);
    __syncthreads();
    prefix |= tile.digit << shift;
    mask |= 255u << shift;
    left = tile.left;
    equals = tile.equals;
  }
  return prefix;
}

/// Keeps all keys whose scores are `least` or more: where none of equal ones is left out. Each warp
/// has a part of the words.
__device__ __forceinline__ std::int64_t keep_from(const latent_attention_kernel_args& args,
                                                  std::int64_t token, std::int64_t keys,
                                                  const std::uint32_t* scores, std::uint32_t least,
                                                  std::uint32_t* words, std::int64_t word_count,
                                                  std::int32_t* slots, selection_tile& tile) {
  constexpr int together = 4, warps = tile_threads / prim::cuda::warp_size;
  const key_indexer& of = args.indexer;
  const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  const int warp = static_cast<int>(threadIdx.x) / prim::cuda::warp_size;
  const std::int64_t each = ceil_div(word_count, warps);
  const std::int64_t begin = warp * each < word_count ? warp * each : word_count;
  const std::int64_t end = begin + each < word_count ? begin + each : word_count;
  int own = 0;
  for (std::int64_t word = begin; word < end; word += together) {
    std::uint32_t score[together];
#pragma unroll
    for (int i = 0; i < together; ++i) {
      const std::int64_t key = (word + i) * 32 + lane;
      score[i] = least != 0 && key < keys ? scores[key] : 0;
    }
#pragma unroll
    for (int i = 0; i < together; ++i) {
      const std::int64_t key = (word + i) * 32 + lane;
      const bool taken = key < keys && (score[i] >= least || (of.force_self && key == token));
      const std::uint32_t votes = __ballot_sync(prim::cuda::all_lanes, taken);
      if (word + i >= end) continue;
      if (lane == i) words[word + i] = votes;
      own += __popc(votes);
    }
  }
  if (slots == nullptr) return 0;
  __syncthreads();
  if (lane == 0) tile.kept[warp] = static_cast<std::uint32_t>(own);
  __syncthreads();
  std::int64_t place = 0, count = 0;
  for (int w = 0; w < warps; ++w) {
    if (w < warp) place += tile.kept[w];
    count += tile.kept[w];
  }
  for (std::int64_t word = begin; word < end; ++word) {
    const std::uint32_t votes = words[word];
    const std::int64_t slot = place + __popc(votes & ((1u << lane) - 1u));
    if ((votes >> lane & 1u) != 0 && slot < of.slots) {
      slots[slot * of.selected.slot] = static_cast<std::int32_t>(word * 32 + lane);
    }
    place += __popc(votes);
  }
  return count;
}

/// Keeps keys whose scores are above `least`, and the first `left` of those that equal it.
__device__ __forceinline__ std::int64_t keep_first_equals(
    const latent_attention_kernel_args& args, std::int64_t token, std::int64_t keys,
    const std::uint32_t* scores, std::uint32_t least, std::uint32_t left, std::uint32_t* words,
    std::int64_t word_count, std::int32_t* slots, selection_tile& tile) {
  const key_indexer& of = args.indexer;
  std::int64_t count = 0;
  for (std::int64_t key0 = 0; key0 < word_count * 32; key0 += tile_threads) {
    const std::int64_t key = key0 + threadIdx.x;
    const std::uint32_t score = key < keys ? scores[key] : 0;
    std::uint32_t equals = 0, takes = 0;
    const bool equal = key < keys && score == least;
    const std::uint32_t rank = rank_of(equal, tile.equal, equals);
    const bool large = key < keys && of.topk > 0 && (score > least || (equal && rank <= left));
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
  return count;
}

/// Keeps the largest scores of a token, of equal ones the first.
__device__ __forceinline__ void keep_largest(const latent_attention_kernel_args& args,
                                             std::int64_t entry, std::int64_t token,
                                             std::int64_t keys, const std::uint32_t* scores,
                                             std::uint32_t* words, std::int64_t word_count,
                                             selection_tile& tile) {
  const key_indexer& of = args.indexer;
  std::int32_t* const slots = of.selected.data != nullptr ? of.selected.at(entry, token) : nullptr;
  std::uint32_t left = 0, equals = 0, least = 0;
  if (of.topk > 0 && of.topk < keys)
    least = threshold_of(scores, keys, of.topk, tile, left, equals);
  std::int64_t count = 0;
  if (of.topk > 0 && left == equals) {
    count = keep_from(args, token, keys, scores, least, words, word_count, slots, tile);
  } else {
    count =
        keep_first_equals(args, token, keys, scores, least, left, words, word_count, slots, tile);
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
