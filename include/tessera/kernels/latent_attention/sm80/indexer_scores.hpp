// Scores of an indexer on the matrix unit, for the tokens of a part of an entry:
//
//   for each token, for each 64 index heads { products with 128 keys; scores += weights
//   relu(products) }
//
// A block has 128 keys, whose operands stay in registers, 32 keys a warp, and 16 tokens, whose
// index queries arrive while those before are multiplied.
#pragma once

#include <cstdint>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/latent_attention/sm80/key_selection.hpp>
#include <tessera/kernels/latent_attention/sm80/sequences.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/shared_tile.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::latent_attention::sm80 {

/// Tokens [first, first + count) of an entry, whose scores are rows of `scores`.
struct token_part {
  std::int64_t entry = 0, first = 0, count = 0;
};

struct indexer_tile {
  static constexpr int heads = 64, keys = 128, width = 128, tokens = 16;
  static constexpr int warps = 4, threads = warps * prim::cuda::warp_size;
  using q_tile = prim::cuda::shared_tile<heads, width>;
  using k_tile = prim::cuda::shared_tile<keys, width>;
  static constexpr int shared_bytes = k_tile::bytes + 2 * q_tile::bytes;

  /// Whether operands are copied as they are stored.
  static bool takes(const key_indexer& of, dtype type) {
    const auto is_aligned = [type](const latent_rows& rows) {
      const auto strides = rows.entry | rows.token | rows.head;
      return rows.type == type && reinterpret_cast<std::uintptr_t>(rows.data) % 16 == 0 &&
             strides % 8 == 0;
    };
    return of.width <= width && of.width % 8 == 0 && is_aligned(of.q) && is_aligned(of.k);
  }

  /// Starts the copy of rows at offset_of(r), where there are any; all else becomes zeros.
  template <class Tile, class OffsetOf>
  static __device__ __forceinline__ void copy(std::uint32_t to, const latent_rows& from,
                                              std::int64_t columns, std::int64_t rows,
                                              const OffsetOf& offset_of) {
    const auto* const elements = static_cast<const std::uint16_t*>(from.data);
#pragma unroll 4
    for (unsigned at = threadIdx.x; at < Tile::rows * Tile::chunks; at += threads) {
      const unsigned r = at / Tile::chunks, chunk = at % Tile::chunks;
      const bool held = r < rows && chunk * 8 < columns;
      prim::cuda::copy_async_16_or_zeros(to + Tile::offset(r, chunk),
                                         elements + (held ? offset_of(r) + chunk * 8 : 0), held);
    }
  }
};

template <class Element>
__global__ void __launch_bounds__(indexer_tile::threads)
    score_part(const __grid_constant__ latent_attention_kernel_args args,
               const selection_memory memory, const token_part part) {
  using tile = indexer_tile;
  using words = prim::cuda::half_words<Element>;
  constexpr int steps = tile::width / 16, groups = 2;  // 16 keys each
  extern __shared__ __align__(1024) unsigned char indexer_memory[];
  __shared__ float weights[2][tile::heads];
  const key_indexer& of = args.indexer;
  const std::int64_t key_tiles = ceil_div(args.length, tile::keys);
  const std::int64_t key0 = blockIdx.x % key_tiles * tile::keys;
  const std::int64_t token0 = blockIdx.x / key_tiles * tile::tokens;
  const std::int64_t left = part.count - token0;
  const int tokens = static_cast<int>(left < tile::tokens ? left : tile::tokens);
  const std::int64_t last = part.first + token0 + tokens - 1;
  const std::int64_t seen = args.causal ? last + 1 : args.length;  // by the last token
  if (key0 >= seen || seen <= of.topk) return;

  const unsigned lane = threadIdx.x % prim::cuda::warp_size;
  const unsigned warp = threadIdx.x / prim::cuda::warp_size;
  const std::uint32_t k_tile = prim::cuda::shared_address(indexer_memory);
  const std::uint32_t q_tiles = k_tile + tile::k_tile::bytes;
  const int chunks = static_cast<int>(ceil_div(of.heads, tile::heads));
  const auto start = [&](int at) {  // 64 heads of a token
    const std::int64_t token = part.first + token0 + at / chunks;
    const std::int64_t head0 = at % chunks * std::int64_t{tile::heads};
    tile::copy<tile::q_tile>(q_tiles + at % 2 * tile::q_tile::bytes, of.q, of.width,
                             of.heads - head0,
                             [&](unsigned r) { return of.q.at(part.entry, token, head0 + r); });
    prim::cuda::commit_copies();
    if (threadIdx.x < tile::heads) {
      const std::int64_t head = head0 + threadIdx.x;
      weights[at % 2][threadIdx.x] =
          head < of.heads ? prim::cuda::number_at(of.weights.data, of.weights.type,
                                                  of.weights.at(part.entry, token) + head)
                          : 0.0f;
    }
  };
  tile::copy<tile::k_tile>(k_tile, of.k, of.width, args.length - key0,
                           [&](unsigned r) { return of.k.at(part.entry, key0 + r); });
  start(0);
  prim::cuda::wait_copies<0>();
  __syncthreads();
  prim::cuda::fragment_b2 k[groups][steps];
#pragma unroll
  for (int g = 0; g < groups; ++g) {
#pragma unroll
    for (int d = 0; d < steps; ++d) {
      prim::cuda::load_matrices(k[g][d].reg,
                                tile::k_tile::step(k_tile + tile::k_tile::lane_of_b(lane),
                                                   static_cast<int>(warp) * groups + g, d));
    }
  }

  float scores[2 * groups][2] = {};  // of this lane's rows; keys as columns of an accumulator
#pragma unroll 1
  for (int at = 0; at < tokens * chunks; ++at) {
    if (at + 1 < tokens * chunks) start(at + 1);
    const std::uint32_t q_tile = q_tiles + at % 2 * tile::q_tile::bytes;
#pragma unroll
    for (int m = 0; m < tile::heads / 16; ++m) {
      prim::cuda::accumulator products[2 * groups] = {};
#pragma unroll
      for (int d = 0; d < steps; ++d) {
        prim::cuda::fragment_a q;
        prim::cuda::load_matrices(q.reg,
                                  tile::q_tile::step(q_tile + tile::q_tile::lane_of_a(lane), m, d));
#pragma unroll
        for (int g = 0; g < groups; ++g) {
          words::template multiply_add<0>(products[2 * g], q, k[g][d]);
          words::template multiply_add<1>(products[2 * g + 1], q, k[g][d]);
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float weight = weights[at % 2][m * 16 + static_cast<int>(lane) / 4 + half * 8];
#pragma unroll
        for (int n = 0; n < 2 * groups; ++n) {
#pragma unroll
          for (int odd = 0; odd < 2; ++odd) {
            scores[n][odd] =
                fmaf(weight, fmaxf(of.sign * products[n].at[2 * half + odd], 0.0f), scores[n][odd]);
          }
        }
      }
    }
    if (at % chunks == chunks - 1) {
      const std::int64_t token = token0 + at / chunks;
      std::uint32_t* const to = memory.scores + token * memory.score_row + key0 +
                                static_cast<std::int64_t>(warp) * groups * 16;
#pragma unroll
      for (int n = 0; n < 2 * groups; ++n) {
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
          float& sum = scores[n][odd];
#pragma unroll
          for (int step = 4; step < prim::cuda::warp_size; step *= 2) {
            sum += __shfl_xor_sync(prim::cuda::all_lanes, sum, step);
          }
          if (lane < 4) to[n * 8 + static_cast<int>(lane) * 2 + odd] = ordered(sum);
          sum = 0.0f;
        }
      }
    }
    prim::cuda::wait_copies<0>();
    __syncthreads();
  }
}

/// Keeps the largest scores of each token of a part. A block for each.
template <int Threads>
__global__ void __launch_bounds__(Threads)
    keep_largest_of_part(const __grid_constant__ latent_attention_kernel_args args,
                         const selection_memory memory, const token_part part) {
  static_assert(Threads == tile_threads);
  __shared__ selection_tile tile;
  const std::int64_t token = part.first + blockIdx.x;
  const std::int64_t keys = args.causal ? token + 1 : args.length;
  keep_largest(args, part.entry, token, keys, memory.scores + blockIdx.x * memory.score_row,
               memory.listed + (part.entry * args.length + token) * memory.words, memory.words,
               tile);
}

}  // namespace tessera::kernels::latent_attention::sm80
