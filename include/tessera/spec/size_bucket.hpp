// Sizes as powers of two: the part of a table key that problems of similar size share.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera {

/// ceil(log2(size)); 0 for sizes below 2.
constexpr std::uint8_t size_bucket(std::int64_t size) noexcept {
  if (size < 2) return 0;
  return static_cast<std::uint8_t>(std::bit_width(static_cast<std::uint64_t>(size - 1)));
}

}  // namespace tessera
