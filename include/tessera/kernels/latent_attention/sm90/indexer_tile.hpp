// What a block of the kernel that scores keys by an indexer (indexer_scores.hpp) has in shared
// memory, how it comes there, and which tokens and keys are its own.
#pragma once

#include <cstdint>

#include <cuda.h>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/latent_attention/sm80/indexer_scores.hpp>
#include <tessera/kernels/latent_attention/sm80/key_selection.hpp>
#include <tessera/kernels/latent_attention/sm80/sequences.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>

namespace tessera::kernels::latent_attention::sm90 {

using sm80::ceil_div;
using sm80::selection_memory;
using sm80::token_part;

/// What a block has, whatever the elements.
struct wide_indexer_shape {
  static constexpr int heads = 64, keys = 256, width = 128, tokens = 64;
  static constexpr int together = 4;  ///< tokens of a product
  static constexpr int columns = together * heads;
  static constexpr int warpgroups = 2, threads = 128 * (warpgroups + 1);
  static constexpr int keys_of_warpgroup = keys / warpgroups, blocks = keys_of_warpgroup / 64;
  static constexpr int panel_bytes = columns * prim::cuda::panel_row_bytes;
  static constexpr int k_panel_bytes = keys * prim::cuda::panel_row_bytes;
  static constexpr int sums = columns / 2;
  static constexpr int producer_registers = 88, consumer_registers = 208;
};

/// Index queries and keys of bf16, or of f8_e4m3: two of these are one element to the copy unit.
template <class Element>
struct wide_indexer : wide_indexer_shape {
  static constexpr int pair = 2 / static_cast<int>(sizeof(Element));
  static constexpr int panels = width / pair / prim::cuda::panel_columns;
  static constexpr int steps = panels * (prim::cuda::panel_row_bytes / 32);
  static constexpr int stages = 2 * pair;

  struct memory {
    alignas(1024) unsigned char k[panels * k_panel_bytes];
    alignas(1024) unsigned char q[stages][panels * panel_bytes];
    alignas(16) float weights[stages][columns];
    float key_scales[keys];
    prim::cuda::ring_barriers<stages> of_q;
    std::uint64_t of_k;
  };
  static constexpr int shared_bytes = static_cast<int>(sizeof(memory));

  /// Index queries and keys as the copy unit brings them: 64 heads of four tokens, a block's keys.
  struct maps {
    CUtensorMap q, k;
  };
  static bool map_all(maps& maps, const latent_attention_kernel_args& args) {
    const key_indexer& of = args.indexer;
    const latent_rows &q = of.q, &k = of.k;
    return of.sign > 0 &&
           prim::cuda::make_tensor_map(maps.q,
                                       {q.data,
                                        {of.width / pair, of.heads, args.length, args.entries},
                                        {1, q.head / pair, q.token / pair, q.entry / pair},
                                        {prim::cuda::panel_columns, heads, together, 1}}) &&
           prim::cuda::make_tensor_map(maps.k, {k.data,
                                                {of.width / pair, 1, args.length, args.entries},
                                                {1, 0, k.token / pair, k.entry / pair},
                                                {prim::cuda::panel_columns, 1, keys, 1}});
  }
};

/// What a block computes: tokens [first, last) of a part, from its first key on.
struct indexer_block {
  std::int64_t key0 = 0;
  int first = 0, last = 0;
};

/// Steps of a block: 64 heads of four tokens each.
__device__ __forceinline__ int index_chunks(const key_indexer& of) {
  return static_cast<int>(ceil_div(of.heads, wide_indexer_shape::heads));
}
__device__ __forceinline__ int index_steps(const key_indexer& of, const indexer_block& block) {
  constexpr int together = wide_indexer_shape::together;
  return (block.last - block.first + together - 1) / together * index_chunks(of);
}

/// Tokens that see no more keys than are kept, or none of the block's, have no scores.
__device__ __forceinline__ indexer_block indexer_block_of(const latent_attention_kernel_args& args,
                                                          const token_part& part) {
  using plan = wide_indexer_shape;
  const std::int64_t key_tiles = ceil_div(args.length, plan::keys);
  const std::int64_t token0 = blockIdx.x / key_tiles * plan::tokens;
  indexer_block block{.key0 = blockIdx.x % key_tiles * plan::keys,
                      .first = static_cast<int>(token0),
                      .last = static_cast<int>(token0) + plan::tokens};
  if (block.last > part.count) block.last = static_cast<int>(part.count);
  if (args.causal) {
    const std::int64_t least = block.key0 > args.indexer.topk ? block.key0 : args.indexer.topk;
    if (least - part.first > block.first) {
      block.first =
          static_cast<int>(least - part.first < block.last ? least - part.first : block.last);
    }
  } else if (args.length <= args.indexer.topk) {
    block.first = block.last;
  }
  return block;
}

}  // namespace tessera::kernels::latent_attention::sm90
