// Division by a number that the host knows before it launches.
#pragma once

#include <bit>
#include <cstdint>

#include <tessera/prim/common/host_device.hpp>

namespace tessera::prim {

/// Divides numbers below 2^31 by `value`, 1 to 2^31: a product and a shift instead of dozens of
/// cycles. T. Granlund, P. Montgomery, "Division by Invariant Integers using Multiplication", 1994.
struct divisor {
  std::uint32_t value = 1;
  std::uint32_t multiplier = 1;
  std::uint32_t shift = 0;

  static constexpr divisor of(std::uint32_t value) noexcept {
    const auto shift = static_cast<std::uint32_t>(value > 1 ? std::bit_width(value - 1) : 0);
    const std::uint64_t excess = (std::uint64_t{1} << shift) - value;
    return {value, static_cast<std::uint32_t>((excess << 32) / value + 1), shift};
  }

  TESSERA_HD constexpr int quotient(int number) const noexcept {
    const auto n = static_cast<std::uint32_t>(number);
    const auto high = static_cast<std::uint32_t>(static_cast<std::uint64_t>(n) * multiplier >> 32);
    return static_cast<int>((high + n) >> shift);
  }
};

}  // namespace tessera::prim
