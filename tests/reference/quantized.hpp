// Quantised weights, one code at a time: what codes and scales stand for.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/families/quantized/options.hpp>
#include <tessera/spec/tensor_view.hpp>

#include "elements.hpp"
#include "float8.hpp"

namespace tessera::reference {

inline constexpr std::array<double, 16> nf4_table{-1.0,
                                                  -0.6961928009986877,
                                                  -0.5250730514526367,
                                                  -0.39491748809814453,
                                                  -0.28444138169288635,
                                                  -0.18477343022823334,
                                                  -0.09105003625154495,
                                                  0.0,
                                                  0.07958029955625534,
                                                  0.16093020141124725,
                                                  0.24611230194568634,
                                                  0.33791524171829224,
                                                  0.44070982933044434,
                                                  0.5626170039176941,
                                                  0.7229568362236023,
                                                  1.0};

/// What a code stands for before the scale of its group.
inline double value_of_weight(weight_mode mode, std::uint32_t code) {
  if (mode == weight_mode::affine) return code;
  if (mode == weight_mode::nf4) return nf4_table[code];
  if (has_e4m3_codes(mode)) {
    return value_of_code(dtype::f8_e4m3, static_cast<std::uint8_t>(code));
  }
  constexpr std::array magnitudes{0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
  const double magnitude = magnitudes[code & 7u];
  return (code & 8u) != 0 ? -magnitude : magnitude;
}

/// What a byte stands for where scales are bytes.
inline double value_of_scale(const quantized_options& options, std::uint8_t code) {
  if (is_nv(options.mode)) return value_of_code(dtype::f8_e4m3, code);
  if (options.scale_encoding == mx_scale_encoding::int8) {
    return std::ldexp(1.0, static_cast<std::int8_t>(code));
  }
  return code == 255 ? std::nan("") : std::ldexp(1.0, code - 127);
}

/// Views of packed weights, as they are stored.
struct packed_view {
  const quantized_options& options;
  const tensor_view& codes;
  const tensor_view& scales;
  const tensor_view& zeros;
  const tensor_view& tensor_scale;

  bool by_column() const { return options.axis == weight_axis::k_major; }
  std::int64_t rows() const { return scales.extent[by_column() ? 1 : 0]; }
  std::int64_t columns() const {
    return scales.extent[by_column() ? 0 : 1] * group_size_of(options);
  }
  /// A number of a row, of words or of groups.
  double number(const tensor_view& numbers, std::int64_t row, std::int64_t place) const {
    return by_column() ? at(numbers, place, row) : at(numbers, row, place);
  }
  double of_tensor() const { return tensor_scale.present() ? read(tensor_scale, 0) : 1.0; }

  std::uint32_t code(std::int64_t row, std::int64_t column) const {
    std::uint32_t code = 0;
    const std::int64_t bits = bits_of(options);
    for (std::int64_t bit = 0; bit < bits; ++bit) {
      const std::int64_t place = column * bits + bit;
      const auto word = static_cast<std::uint32_t>(number(codes, row, place / 32));
      code |= (word >> place % 32 & 1u) << bit;
    }
    return code;
  }
  double scale(std::int64_t row, std::int64_t group) const {
    const double stored = number(scales, row, group);
    if (has_float_scales(options.mode)) return stored;
    return value_of_scale(options, static_cast<std::uint8_t>(stored)) * of_tensor();
  }
  /// A weight, or what its scale is multiplied by.
  double weight(std::int64_t row, std::int64_t column) const {
    const std::int64_t group = column / group_size_of(options);
    const double before = unscaled(row, column) * scale(row, group);
    return is_biased() ? before + number(zeros, row, group) : before;
  }
  double unscaled(std::int64_t row, std::int64_t column) const {
    const double value = value_of_weight(options.mode, code(row, column));
    if (!zeros.present() || is_biased()) return value;
    return value - number(zeros, row, column / group_size_of(options));
  }
  bool is_biased() const {
    return options.mode == weight_mode::affine && options.affine_form == affine_weight_form::bias;
  }
};

/// All weights, row by row as they are stored.
inline std::vector<double> decoded(const packed_view& from) {
  std::vector<double> weights;
  for (std::int64_t row = 0; row < from.rows(); ++row) {
    for (std::int64_t column = 0; column < from.columns(); ++column) {
      weights.push_back(from.weight(row, column));
    }
  }
  return weights;
}

}  // namespace tessera::reference
