// Elements of 8 bits by their definition, in double: a value is a sign, an exponent and a mantissa;
// what is stored is the nearest of all values, the one with an even code of two that are as near.
#pragma once

#include <cmath>
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

inline double value_of_code(dtype type, std::uint8_t code) noexcept {
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

inline std::uint8_t nearest_code(dtype type, double value) noexcept {
  if (std::isnan(value)) return 0x7f;
  const double size = std::fabs(value);
  int best = format_of(type).finite_codes - 1;
  for (int code = best - 1; code >= 0; --code) {
    const double there = value_of_code(type, static_cast<std::uint8_t>(best));
    const double here = value_of_code(type, static_cast<std::uint8_t>(code));
    const double gain = std::fabs(there - size) - std::fabs(here - size);
    if (gain > 0 || (gain == 0 && code % 2 == 0)) best = code;
    if (here < size) break;
  }
  return static_cast<std::uint8_t>(best | (std::signbit(value) ? 0x80 : 0));
}

}  // namespace tessera::reference
