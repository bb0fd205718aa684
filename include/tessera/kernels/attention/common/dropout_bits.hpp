// Which weights of a tile dropout keeps, on a GPU: the bits of prim/common/dropout.hpp.
#pragma once

#include <cstdint>

#include <tessera/prim/common/dropout.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention {

/// The keys of Philox's rounds. Made by the host: computed from the seed in the kernel, they would
/// take twenty registers.
struct dropout_keys {
  prim::philox_key round[prim::philox_rounds] = {};

  static constexpr dropout_keys of(std::uint64_t seed) {
    dropout_keys keys;
    for (std::uint32_t i = 0; i < prim::philox_rounds; ++i) {
      keys.round[i] = prim::philox_key_of(seed, i);
    }
    return keys;
  }
};

/// prim::dropout_words of keys 4 * group ... + 3.
template <class Row>
__device__ __forceinline__ uint4 dropout_words(const dropout_keys& keys, int entry, const Row& row,
                                               int group) {
  uint4 counter = make_uint4(static_cast<unsigned>(group), static_cast<unsigned>(row.query),
                             static_cast<unsigned>(row.head), static_cast<unsigned>(entry));
#pragma unroll
  for (std::uint32_t i = 0; i < prim::philox_rounds; ++i) {
    prim::philox_round(counter.x, counter.y, counter.z, counter.w, keys.round[i]);
  }
  return counter;
}

/// Whether dropout keeps the weight of one key; a word chosen by index would lie in local memory.
template <class Args, class Row>
__device__ __forceinline__ bool keeps_weight(const Args& args, int entry, const Row& row, int key) {
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
template <int KeyTiles, class Row>
__device__ __forceinline__ std::uint32_t kept_elements(const dropout_keys& keys,
                                                       std::uint32_t last_dropped, int thread,
                                                       int entry, const Row& low, const Row& high,
                                                       int key0) {
  static_assert(KeyTiles <= 8);
  const bool odd = thread % 2 != 0;
  const Row row = odd ? high : low;
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

}  // namespace tessera::kernels::attention
