// Elements of 8 bits by their definition, in double: a value is a sign, an exponent and a mantissa;
// what is stored is the nearest of all values, the one with an even code of two that are as near.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tessera/spec/dtype.hpp>

namespace tessera::reference {

/// Codes of a sign that are finite, and bits of the mantissa.
struct float8_format {
  int mantissa_bits = 3;
  int bias = 7;
  int finite_codes = 0x7f;
  bool has_infinity = false;
};
constexpr float8_format format_of(dtype type) noexcept {
  return type == dtype::f8_e5m2 ? float8_format{2, 15, 0x7c, true} : float8_format{};
}

/// What a code stands for.
inline double defined_value(dtype type, std::uint8_t code) noexcept {
  const float8_format format = format_of(type);
  const int magnitude = code & 0x7f;
  const double sign = (code & 0x80) != 0 ? -1.0 : 1.0;
  if (magnitude >= format.finite_codes) {
    const bool infinite = format.has_infinity && magnitude == format.finite_codes;
    return infinite ? sign * HUGE_VAL : std::numeric_limits<double>::quiet_NaN();
  }
  const int leading = 1 << format.mantissa_bits;
  const int exponent = magnitude / leading, mantissa = magnitude % leading;
  const double significand = (exponent > 0 ? leading : 0) + mantissa;
  const int power = (exponent > 0 ? exponent : 1) - format.bias - format.mantissa_bits;
  return sign * std::ldexp(significand, power);
}

/// The same, looked up: tests read codes by the million.
inline double value_of_code(dtype type, std::uint8_t code) noexcept {
  const auto values_of = [](dtype of) {
    std::array<double, 256> values{};
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = defined_value(of, static_cast<std::uint8_t>(i));
    }
    return values;
  };
  static const auto e4m3 = values_of(dtype::f8_e4m3), e5m2 = values_of(dtype::f8_e5m2);
  return (type == dtype::f8_e5m2 ? e5m2 : e4m3)[code];
}

/// Between two powers of 2 values lie evenly, below the first of them as close as above it: the
/// nearest is a whole number of steps away from 0, an even one of two that are as near.
inline std::uint8_t nearest_code(dtype type, double value) {
  if (std::isnan(value)) return 0x7f;
  const float8_format format = format_of(type);
  const int last = format.finite_codes - 1;
  const double size = std::fabs(value);
  int code = last;
  if (size < value_of_code(type, static_cast<std::uint8_t>(last))) {
    const int power = static_cast<int>(std::bit_cast<std::uint64_t>(size) >> 52) - 1023;
    const int exponent = std::max(power + format.bias, 1);
    const int step = exponent - format.bias - format.mantissa_bits;  // its power of 2
    const double steps = size * std::bit_cast<double>(std::uint64_t(1023 - step) << 52);
    code = (exponent - 1) << format.mantissa_bits;
    code += static_cast<int>(steps + 0x1p52 - 0x1p52);
  }
  return static_cast<std::uint8_t>(code | (std::signbit(value) ? 0x80 : 0));
}

}  // namespace tessera::reference
