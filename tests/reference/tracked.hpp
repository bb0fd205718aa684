// A number that knows how large the terms are that it is the sum of: what its rounding error is
// relative to, however much of them cancels.
#pragma once

#include <algorithm>
#include <cmath>

namespace tessera::reference {

template <class Number>
struct tracked {
  Number value{};
  double size = 0;  ///< sum of |terms|

  tracked() = default;
  tracked(Number number) : value(number), size(std::fabs(static_cast<double>(number))) {}  // NOLINT
  tracked(Number number, double terms) : value(number), size(terms) {}

  friend tracked operator+(tracked a, tracked b) { return {a.value + b.value, a.size + b.size}; }
  friend tracked operator-(tracked a, tracked b) { return {a.value - b.value, a.size + b.size}; }
  friend tracked operator*(tracked a, tracked b) { return {a.value * b.value, a.size * b.size}; }
  friend tracked operator/(tracked a, tracked b) {
    const auto divisor = static_cast<double>(b.value);
    return {a.value / b.value, a.size * b.size / (divisor * divisor)};
  }
  tracked& operator+=(tracked other) { return *this = *this + other; }
};

/// Exponents are exact enough that the terms of a power are itself.
template <class Number>
tracked<Number> exp_of(tracked<Number> x) {
  return Number(std::exp(x.value));
}

/// exp(a - b), whose error grows with that of rounded exponents.
template <class Number>
tracked<Number> power_of_difference(Number a, Number b) {
  const Number power = std::exp(a - b);
  if (!(power > 0)) return power;
  const auto largest = static_cast<double>(std::max(std::fabs(a), std::fabs(b)));
  return {power, static_cast<double>(power) * std::max(1.0, largest / 16)};
}

}  // namespace tessera::reference
