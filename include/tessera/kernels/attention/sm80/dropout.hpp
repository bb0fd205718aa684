// Which weights of a warp's tile dropout keeps: the bits of prim/common/dropout.hpp.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/work_tile.hpp>
#include <tessera/prim/common/dropout.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

/// prim::dropout_words of keys 4 * group ... + 3.
__device__ __forceinline__ uint4 dropout_words(const dropout_keys& keys, int entry,
                                               const query_row& row, int group) {
  uint4 counter = make_uint4(static_cast<unsigned>(group), static_cast<unsigned>(row.query),
                             static_cast<unsigned>(row.head), static_cast<unsigned>(entry));
#pragma unroll
  for (std::uint32_t i = 0; i < prim::philox_rounds; ++i) {
    prim::philox_round(counter.x, counter.y, counter.z, counter.w, keys.round[i]);
  }
  return counter;
}

/// Whether dropout keeps the weight of one key; a word chosen by index would lie in local memory.
__device__ __forceinline__ bool keeps_weight(const launch_args& args, int entry,
                                             const query_row& row, int key) {
  if (!args.call.dropout) return true;
  const uint4 words = dropout_words(args.dropout, entry, row, key / 4);
  const std::uint32_t even = key % 4 < 2 ? words.x : words.z;
  const std::uint32_t odd = key % 4 < 2 ? words.y : words.w;
  return (key % 2 == 0 ? even : odd) > args.last_dropped;
}

/// Bits 4 n + 2 * half + i of the result: whether element 2 * half + i of accumulator n is
/// kept. The accumulators' rows are queries `low` and `high`, and the first has keys from `key0`
/// on, a multiple of 8. Each lane draws the four words of one row, and a pair of lanes exchanges
/// halves.
template <int KeyTiles>
__device__ __forceinline__ std::uint32_t kept_elements(const dropout_keys& keys,
                                                       std::uint32_t last_dropped, int thread,
                                                       int entry, const query_row& low,
                                                       const query_row& high, int key0) {
  static_assert(KeyTiles <= 8);
  const bool odd = thread % 2 != 0;
  const query_row row = odd ? high : low;
  const int group0 = key0 / 4 + thread % 4 / 2;
  std::uint32_t own = 0;
#pragma unroll 2
  for (int n = 0; n < KeyTiles; ++n) {
    const uint4 words = dropout_words(keys, entry, row, group0 + n * 2);
    std::uint32_t kept = words.x > last_dropped ? 1u : 0u;
    kept |= words.y > last_dropped ? 2u : 0u;
    kept |= words.z > last_dropped ? 4u : 0u;
    kept |= words.w > last_dropped ? 8u : 0u;
    own |= kept << 4 * n;
  }
  const std::uint32_t others = __shfl_xor_sync(prim::cuda::all_lanes, own, 1);
  // Even lanes own words 0 and 1 of both rows, odd lanes words 2 and 3.
  return odd ? (others >> 2 & 0x33333333u) | (own & 0xccccccccu)
             : (own & 0x33333333u) | (others << 2 & 0xccccccccu);
}

/// Which weights of a warp's tile dropout keeps.
template <class Traits>
struct kept_weights {
  static constexpr bool drops = Traits::has(attention_feature::dropout);
  std::uint32_t bits[drops ? Traits::row_tiles : 1] = {};  ///< see kept_elements

  /// Element e of accumulator n of row tile m.
  __device__ __forceinline__ bool has(int m, int n, int e) const {
    return !drops || (bits[m] >> (4 * n + e) & 1u) != 0;
  }
};

template <class Traits, class State>
__device__ __forceinline__ kept_weights<Traits> draw_kept(const launch_args& args,
                                                          const State& block, int key0) {
  kept_weights<Traits> kept;
  if constexpr (kept_weights<Traits>::drops) {
    const auto thread = static_cast<int>(prim::cuda::thread_index());
#pragma unroll
    for (int m = 0; m < Traits::row_tiles; ++m) kept.bits[m] = 0xffffffffu;
    if (!args.call.dropout) return kept;
#pragma unroll
    for (int m = 0; m < Traits::row_tiles; ++m) {
      kept.bits[m] = kept_elements<Traits::key_tiles>(
          args.dropout, args.last_dropped, thread, static_cast<int>(block.work.seq.index),
          query_at(args, block, row_of_thread<Traits>(thread, m, 0)),
          query_at(args, block, row_of_thread<Traits>(thread, m, 1)), key0);
    }
  }
  return kept;
}

}  // namespace tessera::kernels::attention::sm80
