// What codes and scale bytes stand for, exactly, on every device. Numbers on the way in are those
// between which codes change.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

#include <tessera/prim/common/host_device.hpp>

namespace tessera::kernels::quantized {

/// nf4: quantiles of a normal distribution, from -1 to 1.
inline constexpr std::array<float, 16> nf4_values{-1.0f,
                                                  -0.6961928009986877f,
                                                  -0.5250730514526367f,
                                                  -0.39491748809814453f,
                                                  -0.28444138169288635f,
                                                  -0.18477343022823334f,
                                                  -0.09105003625154495f,
                                                  0.0f,
                                                  0.07958029955625534f,
                                                  0.16093020141124725f,
                                                  0.24611230194568634f,
                                                  0.33791524171829224f,
                                                  0.44070982933044434f,
                                                  0.5626170039176941f,
                                                  0.7229568362236023f,
                                                  1.0f};
/// E2M1: sign, two bits of exponent, one of mantissa.
inline constexpr std::array<float, 16> e2m1_values{0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                                   4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                                   -2.0f, -3.0f, -4.0f, -6.0f};

/// The largest float that is not above `x`.
constexpr float not_above(double x) noexcept {
  const auto nearest = static_cast<float>(x);
  if (static_cast<double>(nearest) <= x) return nearest;
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  return std::bit_cast<float>(nearest > 0 ? bits - 1 : bits + 1);
}
constexpr float below(float x) noexcept {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) - 1);
}

/// A value has as many codes below its own as there are limits that it is above. A tie goes to the
/// lower entry of nf4 and to the even code of E2M1 (magnitudes).
inline constexpr auto nf4_limits = [] {
  std::array<float, 15> limits{};
  for (std::size_t i = 0; i < limits.size(); ++i) {
    limits[i] = not_above(
        (static_cast<double>(nf4_values[i]) + static_cast<double>(nf4_values[i + 1])) / 2);
  }
  return limits;
}();
inline constexpr std::array<float, 7> e2m1_limits{0.25f, below(0.75f), 1.25f, below(1.75f),
                                                  2.5f,  below(3.5f),  5.0f};

inline constexpr float most_float = std::numeric_limits<float>::max();

/// Infinity as the largest number, NaN as it is; the order of comparisons keeps it.
TESSERA_INLINE constexpr float limited(float x) noexcept {
  x = x > most_float ? most_float : x;
  return x < -most_float ? -most_float : x;
}
/// The same, and 0 for NaN.
TESSERA_INLINE constexpr float finite(float x) noexcept {
  return x == x ? limited(x) : 0.0f;  // NOLINT: false for NaN
}

/// The value of a code of E4M3, in whole numbers of 32 bits: what loops become vectors with.
TESSERA_INLINE constexpr float e4m3_value(std::int32_t code) noexcept {
  const std::int32_t magnitude = code & 0x7f;
  // 2^-9 times the code below the least normal number, else exponents biased by 7 become f32's.
  const auto tiny = std::bit_cast<std::int32_t>(static_cast<float>(magnitude) * 0x1p-9f);
  const std::int32_t normal = (magnitude << 20) + (120 << 23);
  std::int32_t bits = magnitude < 8 ? tiny : normal;
  bits = magnitude == 0x7f ? 0x7fc00000 : bits;
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80) << 24;
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) | sign);
}

/// 2^exponent for -128 <= exponent <= 127.
TESSERA_INLINE constexpr float power_of_two(int exponent) noexcept {
  const std::uint32_t bits = exponent > -127 ? static_cast<std::uint32_t>(exponent + 127) << 23
                                             : 0x400000u >> (-127 - exponent);
  return std::bit_cast<float>(bits);
}
/// floor(log2(x)) of a finite number above 0.
TESSERA_INLINE constexpr int exponent_of(float x) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto exponent = static_cast<int>(bits >> 23);
  return exponent > 0 ? exponent - 127 : static_cast<int>(std::bit_width(bits)) - 150;
}

}  // namespace tessera::kernels::quantized
