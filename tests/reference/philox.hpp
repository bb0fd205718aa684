// Philox4x32-10 and the dropout decision, written from their definition and from nothing else.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace tessera::reference {

using philox_block = std::array<std::uint32_t, 4>;

/// Ten rounds on `counter`; the key grows by the two Weyl constants between rounds.
inline philox_block philox4x32_10(philox_block counter, std::uint32_t key_low,
                                  std::uint32_t key_high) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t even = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t odd = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(odd >> 32) ^ counter[1] ^ key_low,
               static_cast<std::uint32_t>(odd),
               static_cast<std::uint32_t>(even >> 32) ^ counter[3] ^ key_high,
               static_cast<std::uint32_t>(even)};
    key_low += 0x9E3779B9u;
    key_high += 0xBB67AE85u;
  }
  return counter;
}

/// True if element (b, h, i, j) survives dropout with probability `p` of being dropped. b is the
/// batch entry or, packed, the sequence; i and j count from the entry's own first row and key.
inline bool dropout_keeps(double p, std::uint64_t seed, std::int64_t b, std::int64_t h,
                          std::int64_t i, std::int64_t j) noexcept {
  const philox_block counter{static_cast<std::uint32_t>(j / 4), static_cast<std::uint32_t>(i),
                             static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(b)};
  const philox_block words = philox4x32_10(counter, static_cast<std::uint32_t>(seed),
                                           static_cast<std::uint32_t>(seed >> 32));
  const double threshold = std::ceil(std::ldexp(p, 32));
  return static_cast<double>(words[static_cast<std::size_t>(j % 4)]) >= threshold;
}

}  // namespace tessera::reference
