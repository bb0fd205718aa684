// Which codes and which scale a group of weights gets, one weight at a time: the rules in float,
// each step rounded, as documented; the nearest value by its distance in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/families/quantized/options.hpp>

#include "float8.hpp"
#include "quantized.hpp"

namespace tessera::reference {

/// What quantize makes of a group: codes, and its scale and zero before they are stored. A scale of
/// bytes is its code.
struct quantized_group {
  std::vector<std::uint32_t> codes;
  double scale = 1;
  double zero = 0;
};

inline constexpr double largest_float = static_cast<double>(std::numeric_limits<float>::max());

/// Infinity is the largest float; NaN stays.
inline float limited_to_float(double weight) {
  return static_cast<float>(std::clamp(weight, -largest_float, largest_float));
}
/// And NaN is 0.
inline float as_finite(double weight) {
  return std::isnan(weight) ? 0.0f : limited_to_float(weight);
}

inline float largest_magnitude(const std::vector<double>& weights) {
  float most = 0;
  for (const double weight : weights) most = std::max(most, std::fabs(as_finite(weight)));
  return most;
}

inline quantized_group quantized_affine(const quantized_options& options,
                                        const std::vector<double>& weights) {
  float most = as_finite(weights[0]), least = most;
  for (const double weight : weights) {
    most = std::max(most, as_finite(weight));
    least = std::min(least, as_finite(weight));
  }
  const auto steps = static_cast<double>((1 << bits_of(options)) - 1);
  const double range = static_cast<double>(most) - static_cast<double>(least);
  const double quotient = std::min(range / steps, largest_float);
  auto scale = static_cast<float>(quotient);
  if (scale == 0.0f) scale = 1.0f;
  const float zero = limited_to_float(-static_cast<double>(least) / static_cast<double>(scale));
  quantized_group group;
  // A float that is not normal has fewer digits than the quotient: it is what counts.
  group.scale = std::isnormal(static_cast<float>(quotient)) ? quotient : static_cast<double>(scale);
  group.zero = options.affine_form == affine_weight_form::bias
                   ? static_cast<double>(least)
                   : -static_cast<double>(least) / group.scale;
  for (const double weight : weights) {
    const float place = as_finite(weight) / scale + zero;
    const float code = std::nearbyint(std::clamp(place, 0.0f, static_cast<float>(steps)));
    group.codes.push_back(static_cast<std::uint32_t>(code));
  }
  return group;
}

inline quantized_group quantized_nf4(const std::vector<double>& weights) {
  const float most = largest_magnitude(weights);
  const float scale = most == 0.0f ? 1.0f : most;
  quantized_group group;
  group.scale = static_cast<double>(scale);
  for (const double weight : weights) {
    const auto value = static_cast<double>(as_finite(weight) / scale);
    std::uint32_t best = 0;
    for (std::uint32_t code = 1; code < nf4_table.size(); ++code) {
      if (std::fabs(nf4_table[code] - value) < std::fabs(nf4_table[best] - value)) best = code;
    }
    group.codes.push_back(best);
  }
  return group;
}

/// E2M1 or E4M3 of a scaled weight: the nearest, ties to even, its sign kept.
inline std::uint32_t nearest_element(weight_mode mode, float value) {
  if (has_e4m3_codes(mode)) return nearest_code(dtype::f8_e4m3, static_cast<double>(value));
  const double size = std::min(std::fabs(static_cast<double>(value)), 6.0);
  std::uint32_t best = 0;
  for (std::uint32_t code = 1; code < 8; ++code) {
    const double distance = std::fabs(value_of_weight(mode, code) - size);
    const double least = std::fabs(value_of_weight(mode, best) - size);
    if (distance < least || (distance == least && code % 2 == 0)) best = code;
  }
  return best | (std::signbit(value) ? 8u : 0u);
}

inline quantized_group quantized_mx(const quantized_options& options,
                                    const std::vector<double>& weights) {
  const float most = largest_magnitude(weights);
  const int top = has_e4m3_codes(options.mode) ? 8 : 2;
  const int exponent = most == 0.0f ? 0 : std::max(std::ilogb(most) - top, -127);
  quantized_group group;
  for (const double weight : weights) {
    const float value = has_e4m3_codes(options.mode) ? limited_to_float(weight) : as_finite(weight);
    group.codes.push_back(nearest_element(options.mode, std::ldexp(value, -exponent)));
  }
  const bool plain = options.scale_encoding == mx_scale_encoding::int8;
  group.scale = static_cast<std::uint8_t>(plain ? exponent : exponent + 127);
  return group;
}

inline quantized_group quantized_nv(const quantized_options& options, float of_tensor,
                                    const std::vector<double>& weights) {
  const float top = has_e4m3_codes(options.mode) ? 448.0f : 6.0f;
  const float wanted = largest_magnitude(weights) / top / of_tensor;
  const std::uint8_t code = nearest_code(dtype::f8_e4m3, static_cast<double>(wanted));
  const float scale = static_cast<float>(value_of_code(dtype::f8_e4m3, code)) * of_tensor;
  quantized_group group;
  group.scale = static_cast<double>(code);
  for (const double weight : weights) {
    const float value = has_e4m3_codes(options.mode) ? limited_to_float(weight) : as_finite(weight);
    group.codes.push_back(scale == 0.0f ? 0 : nearest_element(options.mode, value / scale));
  }
  return group;
}

inline quantized_group quantized(const quantized_options& options, double of_tensor,
                                 const std::vector<double>& weights) {
  if (options.mode == weight_mode::affine) return quantized_affine(options, weights);
  if (options.mode == weight_mode::nf4) return quantized_nf4(weights);
  if (is_mx(options.mode)) return quantized_mx(options, weights);
  return quantized_nv(options, static_cast<float>(of_tensor), weights);
}

/// Codes, scales and zeros, each in row-major order.
struct packed_values {
  std::vector<double> words, scales, zeros;

  void append_codes(const std::vector<std::uint32_t>& codes, std::int64_t bits) {
    std::vector<std::uint32_t> row((codes.size() * static_cast<std::size_t>(bits) + 31) / 32);
    for (std::size_t i = 0; i < codes.size() * static_cast<std::size_t>(bits); ++i) {
      const std::size_t code = i / static_cast<std::size_t>(bits);
      const std::size_t bit = i % static_cast<std::size_t>(bits);
      row[i / 32] |= (codes[code] >> bit & 1u) << i % 32;
    }
    words.insert(words.end(), row.begin(), row.end());
  }
};

/// Numbers of `rows` rows, column by column.
inline std::vector<double> turned(const std::vector<double>& numbers, std::int64_t rows) {
  const std::int64_t columns =
      static_cast<std::int64_t>(numbers.size()) / std::max<std::int64_t>(rows, 1);
  std::vector<double> all;
  for (std::int64_t column = 0; column < columns; ++column) {
    for (std::int64_t row = 0; row < rows; ++row) {
      all.push_back(numbers[static_cast<std::size_t>(row * columns + column)]);
    }
  }
  return all;
}

}  // namespace tessera::reference
