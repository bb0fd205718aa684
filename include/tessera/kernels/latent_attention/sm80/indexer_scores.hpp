// Scores of an indexer on the matrix unit, for the tokens of a part of an entry:
//
//   for each token, for each 64 index heads { products with 128 keys; scores += weights
//   relu(products) }
//
// A block has 128 keys, whose operands stay in registers, 32 keys a warp, and 16 tokens, whose
// index queries arrive while those before are multiplied. Those of 8 bits become f16 on their way,
// which has every one of their numbers.
#pragma once

#include <cstdint>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/latent_attention/sm80/key_selection.hpp>
#include <tessera/kernels/latent_attention/sm80/sequences.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/code_words.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/shared_tile.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/float8.hpp>

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

  /// Whether operands of a type, or of 8 bits, are read in whole pieces of 16 bytes.
  static bool takes(const key_indexer& of, dtype type) {
    const int piece = is_coded(of) ? 16 : 8;
    const auto is_aligned = [piece](const latent_rows& rows) {
      const auto strides = rows.entry | rows.token | rows.head;
      return reinterpret_cast<std::uintptr_t>(rows.data) % 16 == 0 && strides % piece == 0;
    };
    return (of.q.type == type || is_coded(of)) && of.width <= width && of.width % piece == 0 &&
           is_aligned(of.q) && is_aligned(of.k);
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

/// Rows of 8 bits on their way to a tile of f16, in this thread's registers: 16 elements a piece.
template <class Tile>
class coded_rows {
  static constexpr unsigned pieces = Tile::chunks / 2;  ///< of a row
  static constexpr int own = Tile::rows * pieces / indexer_tile::threads;

 public:
  /// Reads rows at offset_of(r), where there are any; all else is zeros.
  template <class OffsetOf>
  __device__ __forceinline__ void read(const latent_rows& from, std::int64_t columns,
                                       std::int64_t rows, const OffsetOf& offset_of) {
    const auto* const codes = static_cast<const std::uint8_t*>(from.data);
#pragma unroll
    for (int i = 0; i < own; ++i) {
      const unsigned r = row(i), piece = threadIdx.x % pieces;
      const bool held = r < rows && piece * 16 < columns;
      codes_[i] = held ? *reinterpret_cast<const uint4*>(codes + offset_of(r) + piece * 16)
                       : uint4{0, 0, 0, 0};
    }
  }
  __device__ __forceinline__ void write(std::uint32_t to, dtype type) const {
    if (type == dtype::f8_e4m3) return write_as<f8_e4m3>(to);
    write_as<f8_e5m2>(to);
  }

 private:
  static __device__ __forceinline__ unsigned row(int i) {
    return threadIdx.x / pieces + static_cast<unsigned>(i) * (indexer_tile::threads / pieces);
  }
  template <class Code>
  __device__ __forceinline__ void write_as(std::uint32_t to) const {
#pragma unroll
    for (int i = 0; i < own; ++i) {
      const uint2 a = prim::cuda::halves_of_four<Code>(codes_[i].x);
      const uint2 b = prim::cuda::halves_of_four<Code>(codes_[i].y);
      const uint2 c = prim::cuda::halves_of_four<Code>(codes_[i].z);
      const uint2 d = prim::cuda::halves_of_four<Code>(codes_[i].w);
      const unsigned chunk = threadIdx.x % pieces * 2;
      prim::cuda::store_shared_16(to + Tile::offset(row(i), chunk), {a.x, a.y, b.x, b.y});
      prim::cuda::store_shared_16(to + Tile::offset(row(i), chunk + 1), {c.x, c.y, d.x, d.y});
    }
  }

  uint4 codes_[own];
};

/// `Coded`: index queries and keys have 8 bits, and are multiplied as f16.
template <class Element, bool Coded>
__global__ void __launch_bounds__(indexer_tile::threads)
    score_part(const __grid_constant__ latent_attention_kernel_args args,
               const selection_memory memory, const token_part part) {
  using tile = indexer_tile;
  using words = prim::cuda::half_words<Element>;
  constexpr int steps = tile::width / 16, groups = 2;  // 16 keys each
  extern __shared__ __align__(1024) unsigned char indexer_memory[];
  __shared__ float weights[2][tile::heads], key_scales[tile::keys];
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
  coded_rows<tile::q_tile> coded;
  const auto start = [&](int at) {  // 64 heads of a token
    const std::int64_t token = part.first + token0 + at / chunks;
    const std::int64_t head0 = at % chunks * std::int64_t{tile::heads};
    const auto offset_of = [&](unsigned r) { return of.q.at(part.entry, token, head0 + r); };
    if constexpr (Coded) {
      coded.read(of.q, of.width, of.heads - head0, offset_of);
    } else {
      tile::copy<tile::q_tile>(q_tiles + at % 2 * tile::q_tile::bytes, of.q, of.width,
                               of.heads - head0, offset_of);
      prim::cuda::commit_copies();
    }
    if (threadIdx.x < tile::heads) {
      const std::int64_t head = head0 + threadIdx.x;
      weights[at % 2][threadIdx.x] =
          head < of.heads ? index_weight(of, part.entry, token, head) : 0.0f;
    }
  };
  const auto finish = [&](int at) {
    if constexpr (Coded) coded.write(q_tiles + at % 2 * tile::q_tile::bytes, of.q.type);
  };
  const auto key_offset = [&](unsigned r) { return of.k.at(part.entry, key0 + r); };
  if constexpr (Coded) {
    coded_rows<tile::k_tile> keys;
    keys.read(of.k, of.width, args.length - key0, key_offset);
    keys.write(k_tile, of.k.type);
  } else {
    tile::copy<tile::k_tile>(k_tile, of.k, of.width, args.length - key0, key_offset);
  }
  const std::int64_t own_key = key0 + threadIdx.x;
  key_scales[threadIdx.x] = own_key < args.length ? index_key_scale(of, part.entry, own_key) : 1.0f;
  static_assert(tile::threads == tile::keys);
  start(0);
  finish(0);
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
      const int key = static_cast<int>(warp) * groups * 16 + static_cast<int>(lane % 4) * 2;
      std::uint32_t* const to = memory.scores + token * memory.score_row + key0 + key;
#pragma unroll
      for (int n = 0; n < 2 * groups; ++n) {
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
          float& sum = scores[n][odd];
#pragma unroll
          for (int step = 4; step < prim::cuda::warp_size; step *= 2) {
            sum += __shfl_xor_sync(prim::cuda::all_lanes, sum, step);
          }
          if (lane < 4) to[n * 8 + odd] = ordered(key_scales[key + n * 8 + odd] * sum);
          sum = 0.0f;
        }
      }
    }
    if (at + 1 < tokens * chunks) finish(at + 1);
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
