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

/// Of the 20 products of a draw five are those of the row alone, of its head, or of the four keys
/// alone: of the first three rounds, whose other words only pass through. What they make of a row,
/// ...
struct rounds_of_row {
  std::uint32_t head_low, row_high, row_low;
};
/// ... and of four keys.
struct rounds_of_group {
  std::uint32_t low, high, head_high;
};

template <class Row>
__device__ __forceinline__ rounds_of_row begin_rounds(const dropout_keys& keys, const Row& row) {
  const std::uint64_t head =
      std::uint64_t{prim::philox_multiplier2} * static_cast<std::uint32_t>(row.head);
  const std::uint32_t word0 = static_cast<std::uint32_t>(head >> 32) ^
                              static_cast<std::uint32_t>(row.query) ^ keys.round[0].low;
  const std::uint64_t product = std::uint64_t{prim::philox_multiplier0} * word0;
  return {static_cast<std::uint32_t>(head),
          static_cast<std::uint32_t>(product >> 32) ^ keys.round[1].high,
          static_cast<std::uint32_t>(product)};
}

__device__ __forceinline__ rounds_of_group begin_rounds(const dropout_keys& keys, int entry,
                                                        int group) {
  const std::uint64_t first =
      std::uint64_t{prim::philox_multiplier0} * static_cast<std::uint32_t>(group);
  const std::uint32_t word2 = static_cast<std::uint32_t>(first >> 32) ^
                              static_cast<std::uint32_t>(entry) ^ keys.round[0].high;
  const std::uint64_t second = std::uint64_t{prim::philox_multiplier2} * word2;
  return {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(second) ^ keys.round[2].low,
          static_cast<std::uint32_t>(second >> 32) ^ keys.round[1].low};
}

/// `dropout_words` of a row and a group, from what three rounds have made of each. `of_head`: the
/// product of the third round that rows of a head share.
__device__ __forceinline__ uint4 end_rounds(const dropout_keys& keys, const rounds_of_row& row,
                                            const rounds_of_group& group, std::uint64_t of_head) {
  const std::uint64_t product =
      std::uint64_t{prim::philox_multiplier2} * (row.row_high ^ group.low);
  uint4 words = make_uint4(
      static_cast<std::uint32_t>(product >> 32) ^ group.high, static_cast<std::uint32_t>(product),
      static_cast<std::uint32_t>(of_head >> 32) ^ row.row_low ^ keys.round[2].high,
      static_cast<std::uint32_t>(of_head));
#pragma unroll
  for (std::uint32_t i = 3; i < prim::philox_rounds; ++i) {
    prim::philox_round(words.x, words.y, words.z, words.w, keys.round[i]);
  }
  return words;
}

/// Appends the bit of a word: 1 if it is above `last_dropped`, whose complement is `addend`.
__device__ __forceinline__ void append_kept(std::uint32_t& bits, std::uint32_t word,
                                            std::uint32_t addend) {
  asm("{\n.reg .u32 sum;\nadd.cc.u32 sum, %1, %2;\naddc.u32 %0, %0, %0;\n}"
      : "+r"(bits)
      : "r"(word), "r"(addend));
}

/// Sets bit `Bit` of a word of zeros there, if a word is above `last_dropped`.
template <int Bit>
__device__ __forceinline__ void set_kept(std::uint32_t& bits, std::uint32_t word,
                                         std::uint32_t last_dropped) {
  asm("{\n.reg .pred kept;\nsetp.hi.u32 kept, %1, %2;\n@kept or.b32 %0, %0, %3;\n}"
      : "+r"(bits)
      : "r"(word), "r"(last_dropped), "n"(1u << Bit));
}

/// `kept_elements` of rows whose rounds have begun. Each lane draws the four words of both rows in
/// every other accumulator, `Together` pairs of accumulators at once; what keys have in common the
/// lanes of a warp make for one another.
template <int KeyTiles, int Together>
__device__ __forceinline__ std::uint32_t kept_elements(const dropout_keys& keys,
                                                       std::uint32_t last_dropped, int thread,
                                                       int entry, const rounds_of_row (&rows)[2],
                                                       int key0) {
  static_assert(KeyTiles <= 8 && KeyTiles % 2 == 0);
  const auto lane = static_cast<unsigned>(thread);
  const bool odd = lane % 2 != 0;
  const rounds_of_group own =
      begin_rounds(keys, entry, static_cast<int>(static_cast<unsigned>(key0) / 4 + lane % 16));
  const int first = static_cast<int>(lane % 2 * 2 + lane % 4 / 2);
  const bool differ = prim::cuda::any_of_warp(rows[1].head_low != rows[0].head_low);
  std::uint32_t kept = 0;
#pragma unroll Together
  for (int pair = KeyTiles / 2 - 1; pair >= 0; --pair) {
    const auto of_lane = [&](std::uint32_t x) {
      return __shfl_sync(prim::cuda::all_lanes, x, pair * 4 + first);
    };
    const rounds_of_group group{of_lane(own.low), of_lane(own.high), of_lane(own.head_high)};
    const std::uint64_t of_head =
        std::uint64_t{prim::philox_multiplier0} * (group.head_high ^ rows[0].head_low);
    std::uint64_t of_next = of_head;
    if (differ) {  // a branch, not a choice
      of_next = std::uint64_t{prim::philox_multiplier0} *
                prim::cuda::computed_anew(group.head_high ^ rows[1].head_low);
    }
    const uint4 low = end_rounds(keys, rows[0], group, of_head);
    const uint4 high = end_rounds(keys, rows[1], group, of_next);
    kept <<= 8;
    set_kept<7>(kept, high.w, last_dropped);
    set_kept<6>(kept, high.z, last_dropped);
    set_kept<5>(kept, low.w, last_dropped);
    set_kept<4>(kept, low.z, last_dropped);
    set_kept<3>(kept, high.y, last_dropped);
    set_kept<2>(kept, high.x, last_dropped);
    set_kept<1>(kept, low.y, last_dropped);
    set_kept<0>(kept, low.x, last_dropped);
  }
  // Even lanes have words 0 and 1 of every accumulator, odd lanes words 2 and 3.
  const std::uint32_t others = __shfl_xor_sync(prim::cuda::all_lanes, kept, 1);
  return odd ? (others >> 4 & 0x0f0f0f0fu) | (kept & 0xf0f0f0f0u)
             : (kept & 0x0f0f0f0fu) | (others << 4 & 0xf0f0f0f0u);
}

}  // namespace tessera::kernels::attention
