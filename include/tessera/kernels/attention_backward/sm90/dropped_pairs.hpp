// Which weights of a tile dropout takes where rows are keys: the bits of prim/common/dropout.hpp.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/common/dropout_bits.hpp>
#include <tessera/kernels/attention_backward/sm80/block.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention_backward::sm90 {

/// What the random words of a pair are drawn from, besides its key.
struct drawn_row {
  int head = 0;
  std::uint32_t query = 0;
};

/// Bits 4 n + e of word n / 8: whether dropout takes element 4 n + e of a tile of products, see
/// `own_scores`. `first`: where the tile's first query meets the block's first key, a multiple of
/// 4; `key`: the first of the thread's two keys, from there.
///
/// A draw is of one query and four keys, which four lanes have: lanes 4 apart, with the same
/// queries. Of the two queries and two times four keys that they have in eight columns each draws
/// for one, `own`, and then gives each key's bits to the lane that has the key.
template <int Words>
__device__ __forceinline__ void draw_dropped(const sm80::launch_args& args,
                                             const sm80::score_place& first, int key,
                                             std::uint32_t (&dropped)[Words]) {
  namespace bits = kernels::attention;
  const bits::dropout_keys& keys = args.dropout;
  const unsigned lane = threadIdx.x % 32, own = lane / 4 % 4;
  const auto first_key =
      static_cast<std::uint32_t>(first.key) + (static_cast<std::uint32_t>(key) & ~3u) + own / 2 * 8;
  const bits::rounds_of_group group =
      bits::begin_rounds(keys, static_cast<int>(first.entry), static_cast<int>(first_key / 4));
  drawn_row row{first.head, static_cast<std::uint32_t>(first.query) + lane % 4 * 2 + own % 2};
  const std::uint64_t of_head =
      std::uint64_t{prim::philox_multiplier0} *
      (group.head_high ^ prim::philox_multiplier2 * static_cast<std::uint32_t>(row.head));
  const std::uint32_t addend = ~args.last_dropped;
#pragma unroll
  for (int w = 0; w < Words; ++w) {
    std::uint32_t kept = 0;
#pragma unroll 2
    for (int n = 7; n >= 0; --n) {
      const drawn_row of_column{row.head, row.query + static_cast<std::uint32_t>(w * 64 + n * 8)};
      const uint4 words =
          bits::end_rounds(keys, bits::begin_rounds(keys, of_column), group, of_head);
      bits::append_kept(kept, words.w, addend);
      bits::append_kept(kept, words.z, addend);
      bits::append_kept(kept, words.y, addend);
      bits::append_kept(kept, words.x, addend);
    }
    // Of each four bits number c of lane `own` becomes number `own` of lane c.
    const auto swap = [&](unsigned distance, std::uint32_t low) {
      const int shift = static_cast<int>(distance);
      const std::uint32_t others = __shfl_xor_sync(prim::cuda::all_lanes, kept, 4 * distance);
      kept = (own & distance) != 0 ? (kept & ~low) | (others >> shift & low)
                                   : (kept & low) | (others << shift & ~low);
    };
    swap(1, 0x55555555u);
    swap(2, 0x33333333u);
    dropped[w] = ~kept;
  }
}

/// Weights that dropout takes change their signs: the gradients of all need them.
template <int First, int End, int Words, int Count>
__device__ __forceinline__ void mark_dropped(const std::uint32_t (&dropped)[Words],
                                             float (&weights)[Count]) {
  static_assert(Words * 32 == Count);
#pragma unroll
  for (int i = First; i < End; ++i) {
    weights[i] = __uint_as_float(__float_as_uint(weights[i]) ^
                                 (dropped[i / 32] << (31 - i % 32) & 0x80000000u));
  }
}
__device__ __forceinline__ bool is_marked(float weight) {
  return __float_as_int(weight) < 0;
}
/// 0 where dropout takes the weight, NaN if it is.
__device__ __forceinline__ float kept_weight(float marked) {
  float kept;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(kept) : "f"(marked));
  return kept;
}

}  // namespace tessera::kernels::attention_backward::sm90
