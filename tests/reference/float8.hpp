// Elements of 8 bits by their definition, in double: a value is a sign, an exponent and a mantissa;
// what is stored is the nearest of all values, the one with an even code of two that are as near.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

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

/// The values of the finite codes, from 0 up.
inline const std::vector<double>& finite_values(dtype type) {
  const auto all_of = [](dtype of) {
    std::vector<double> values;
    for (int code = 0; code < format_of(of).finite_codes; ++code) {
      values.push_back(value_of_code(of, static_cast<std::uint8_t>(code)));
    }
    return values;
  };
  static const std::vector<double> e4m3 = all_of(dtype::f8_e4m3), e5m2 = all_of(dtype::f8_e5m2);
  return type == dtype::f8_e5m2 ? e5m2 : e4m3;
}

inline std::uint8_t nearest_code(dtype type, double value) {
  if (std::isnan(value)) return 0x7f;
  const std::vector<double>& values = finite_values(type);
  const double size = std::fabs(value);
  const auto above = std::ranges::lower_bound(values, size);
  auto best = std::min(above, values.end() - 1) - values.begin();
  if (above != values.begin() && above != values.end()) {
    const double up = *above - size, down = size - *(above - 1);
    if (down < up || (down == up && best % 2 != 0)) --best;
  }
  return static_cast<std::uint8_t>(best | (std::signbit(value) ? 0x80 : 0));
}

}  // namespace tessera::reference
