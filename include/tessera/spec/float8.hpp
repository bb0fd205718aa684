// Storage types of 8 bits beside those of dtype.hpp, which few units need: the two of floating
// point, with exact conversions, and whole numbers.
//
// | type | exponent, mantissa | largest finite | least above 0 | beyond |
// |---|---|---|---|---|
// | f8_e4m3 | 4, 3 | 448 (code 0x7e) | 2^-9 | one NaN, 0x7f; no infinity |
// | f8_e5m2 | 5, 2 | 57344 (code 0x7b) | 2^-16 | infinity 0x7c, NaN behind it |
//
// From float: to the nearest, ties to even; what is larger than the largest finite number, infinity
// too, becomes that number with its sign; NaN becomes 0x7f. No branch, so that loops over elements
// become vectors.
#pragma once

#include <bit>
#include <cstdint>

#include <tessera/spec/dtype.hpp>

namespace tessera {

namespace float8 {

/// The code of a float in a format of `Mantissa` bits behind an exponent biased by `Bias`.
template <int Mantissa, int Bias, std::uint32_t Largest>
[[gnu::always_inline]] constexpr std::uint8_t code_of(float value) noexcept {
  constexpr int dropped = 23 - Mantissa;
  constexpr std::uint32_t rebias = static_cast<std::uint32_t>(127 - Bias) << 23;
  constexpr std::uint32_t least_normal = rebias + (1u << 23);
  // The last place of this number is the least number of the format: a sum is rounded there.
  constexpr std::uint32_t anchor = static_cast<std::uint32_t>(127 + 24 - Bias - Mantissa) << 23;
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = word & 0x7fffffffu;
  const std::uint32_t tiny =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(anchor)) -
      anchor;
  const std::uint32_t odd = magnitude >> dropped & 1u;
  const std::uint32_t normal = (magnitude - rebias + ((1u << (dropped - 1)) - 1) + odd) >> dropped;
  std::uint32_t code = magnitude < least_normal ? tiny : normal;
  code = code < Largest ? code : Largest;
  code |= word >> 24 & 0x80u;
  return static_cast<std::uint8_t>(magnitude > 0x7f800000u ? 0x7fu : code);
}

/// The float of a code; those from `Special` on are infinite (mantissa 0) or NaN.
template <int Mantissa, int Bias, std::uint32_t Special>
[[gnu::always_inline]] constexpr float value_of(std::uint8_t code) noexcept {
  constexpr std::uint32_t rebias = static_cast<std::uint32_t>(127 - Bias) << 23;
  constexpr float least =
      std::bit_cast<float>(static_cast<std::uint32_t>(128 - Bias - Mantissa) << 23);
  const std::uint32_t magnitude = code & 0x7fu;
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80u) << 24;
  const float tiny = static_cast<float>(static_cast<std::int32_t>(magnitude)) * least;
  const std::uint32_t finite = magnitude < 1u << Mantissa ? std::bit_cast<std::uint32_t>(tiny)
                                                          : (magnitude << (23 - Mantissa)) + rebias;
  const std::uint32_t special = 0x7f800000u | (magnitude << (23 - Mantissa) & 0x7fffffu);
  return std::bit_cast<float>(sign | (magnitude >= Special ? special : finite));
}

}  // namespace float8

/// 8-bit float with 4 bits of exponent (OCP E4M3).
struct f8_e4m3 {
  std::uint8_t bits = 0;

  f8_e4m3() = default;
  [[gnu::always_inline]] constexpr explicit f8_e4m3(float value) noexcept
      : bits(float8::code_of<3, 7, 0x7eu>(value)) {}
  [[gnu::always_inline]] constexpr explicit operator float() const noexcept {
    return float8::value_of<3, 7, 0x7fu>(bits);
  }
};

/// 8-bit float with 5 bits of exponent (OCP E5M2): the upper byte of a binary16.
struct f8_e5m2 {
  std::uint8_t bits = 0;

  f8_e5m2() = default;
  [[gnu::always_inline]] constexpr explicit f8_e5m2(float value) noexcept
      : bits(float8::code_of<2, 15, 0x7bu>(value)) {}
  [[gnu::always_inline]] constexpr explicit operator float() const noexcept {
    return float8::value_of<2, 15, 0x7cu>(bits);
  }
};

template <>
struct dtype_of<f8_e4m3> : dtype_constant<dtype::f8_e4m3> {};
template <>
struct dtype_of<f8_e5m2> : dtype_constant<dtype::f8_e5m2> {};

template <>
struct element_of<dtype::f8_e4m3> {
  using type = f8_e4m3;
};
template <>
struct element_of<dtype::f8_e5m2> {
  using type = f8_e5m2;
};
template <>
struct element_of<dtype::i8> {
  using type = std::int8_t;
};

}  // namespace tessera
