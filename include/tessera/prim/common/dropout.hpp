// Which attention weights dropout keeps: a pure function of the seed and the element's position, so
// that every backend, tiling and direction agrees bit for bit.
//
// Philox4x32-10: J. K. Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC11.
#pragma once

#include <array>
#include <cstdint>

#include <tessera/prim/common/host_device.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::prim {

using philox_block = std::array<std::uint32_t, 4>;

inline constexpr std::uint32_t philox_rounds = 10;
/// What words 0 and 2 of a counter are multiplied by in each round.
inline constexpr std::uint32_t philox_multiplier0 = 0xD2511F53u, philox_multiplier2 = 0xCD9E8D57u;

/// The key of one round.
struct philox_key {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
};

/// The key of a round from 0 on, for the 64-bit key `seed`, whose low word is first.
TESSERA_HD constexpr philox_key philox_key_of(std::uint64_t seed, std::uint32_t round) noexcept {
  return {static_cast<std::uint32_t>(seed) + round * 0x9E3779B9u,
          static_cast<std::uint32_t>(seed >> 32) + round * 0xBB67AE85u};
}

/// One round on the four words of a counter, which the caller keeps where it likes: every loop over
/// rounds, counters and registers is made of this.
TESSERA_HD TESSERA_INLINE constexpr void philox_round(std::uint32_t& word0, std::uint32_t& word1,
                                                      std::uint32_t& word2, std::uint32_t& word3,
                                                      const philox_key& key) noexcept {
  const std::uint64_t product0 = std::uint64_t{philox_multiplier0} * word0;
  const std::uint64_t product1 = std::uint64_t{philox_multiplier2} * word2;
  word0 = static_cast<std::uint32_t>(product1 >> 32) ^ word1 ^ key.low;
  word1 = static_cast<std::uint32_t>(product1);
  word2 = static_cast<std::uint32_t>(product0 >> 32) ^ word3 ^ key.high;
  word3 = static_cast<std::uint32_t>(product0);
}

/// All rounds of Philox4x32 over `counter` with the 64-bit key `seed`.
TESSERA_HD constexpr philox_block philox4x32(philox_block counter, std::uint64_t seed) noexcept {
  for (std::uint32_t round = 0; round < philox_rounds; ++round) {
    philox_round(counter[0], counter[1], counter[2], counter[3], philox_key_of(seed, round));
  }
  return counter;
}

/// The four random words of keys 4 * (key / 4) ... + 3 of one row. `entry` is the batch entry, or
/// the sequence number when packed; row and key are local to it.
TESSERA_HD constexpr philox_block dropout_words(std::uint64_t seed, std::int64_t entry, int head,
                                                std::int64_t row, std::int64_t key) noexcept {
  return philox4x32({static_cast<std::uint32_t>(key / 4), static_cast<std::uint32_t>(row),
                     static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(entry)},
                    seed);
}

/// True where the weight of (entry, head, row, key) is kept: word >= ceil(p * 2^32) = `threshold`.
TESSERA_HD constexpr bool dropout_keeps(std::uint64_t seed, std::uint64_t threshold,
                                        std::int64_t entry, int head, std::int64_t row,
                                        std::int64_t key) noexcept {
  return dropout_words(seed, entry, head, row, key)[static_cast<std::size_t>(key % 4)] >= threshold;
}

/// Keys that `dropout_kept` decides about together.
inline constexpr int dropout_keys_at_once = 64;

/// kept[i] = 1 where the weight of key + i is kept, else 0: the same words as `dropout_keeps`, all
/// counters side by side for the vectoriser. `key` need not be a multiple of 4.
inline void dropout_kept(std::uint64_t seed, std::uint64_t threshold, std::int64_t entry, int head,
                         std::int64_t row, std::int64_t key,
                         float (&kept)[dropout_keys_at_once]) noexcept {
  // One counter makes four words; an unaligned first key needs one counter more.
  constexpr int counters = dropout_keys_at_once / 4 + 4;
  std::uint32_t word[4][counters];
  for (int i = 0; i < counters; ++i) {
    word[0][i] = static_cast<std::uint32_t>(key / 4) + static_cast<std::uint32_t>(i);
    word[1][i] = static_cast<std::uint32_t>(row);
    word[2][i] = static_cast<std::uint32_t>(head);
    word[3][i] = static_cast<std::uint32_t>(entry);
  }
  for (std::uint32_t round = 0; round < philox_rounds; ++round) {
    const philox_key round_key = philox_key_of(seed, round);
    for (int i = 0; i < counters; ++i) {
      philox_round(word[0][i], word[1][i], word[2][i], word[3][i], round_key);
    }
  }
  float keeps[4 * counters];
  for (int i = 0; i < counters; ++i) {
    for (int w = 0; w < 4; ++w) keeps[4 * i + w] = word[w][i] >= threshold ? 1.0f : 0.0f;
  }
  const auto skipped = static_cast<int>(key % 4);
  for (int i = 0; i < dropout_keys_at_once; ++i) kept[i] = keeps[i + skipped];
}

/// Writes 1 (kept) or 0 for every element of a [B, Hq, Sq, Sk] mask, masked elements included.
inline void write_dropout_mask(const tensor_view& mask, std::uint64_t seed,
                               std::uint64_t threshold) {
  auto* data = static_cast<std::uint8_t*>(mask.data);
  for (std::int64_t b = 0; b < mask.extent[0]; ++b) {
    for (std::int64_t h = 0; h < mask.extent[1]; ++h) {
      for (std::int64_t i = 0; i < mask.extent[2]; ++i) {
        std::uint8_t* row = data + b * mask.stride[0] + h * mask.stride[1] + i * mask.stride[2];
        for (std::int64_t j = 0; j < mask.extent[3]; ++j) {
          row[j * mask.stride[3]] =
              dropout_keeps(seed, threshold, b, static_cast<int>(h), i, j) ? 1 : 0;
        }
      }
    }
  }
}

}  // namespace tessera::prim
