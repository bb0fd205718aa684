// Options of the operations on quantised weights, under the names that tools and files use.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include <tessera/families/grouped_matmul/options.hpp>

namespace tessera {

/// What a code of a weight stands for, before the scale of its group:
///
/// | mode | bits | group size | code | scales |
/// |---|---|---|---|---|
/// | affine | 1 to 8, 4 unless set | 64 unless set | a whole number from 0 | floats, with zeros |
/// | nf4 | 4 | 64 unless set | one of 16 quantiles of a normal distribution | floats |
/// | mxfp4, mxfp8 | 4, 8 | 32 | E2M1, E4M3 | exponents, in bytes |
/// | nvfp4, nvfp8 | 4, 8 | 16 | E2M1, E4M3 | E4M3, in bytes |
enum class weight_mode : std::uint8_t { affine, nf4, mxfp4, mxfp8, nvfp4, nvfp8 };
inline constexpr std::array<std::string_view, 6> weight_mode_names{"affine", "nf4",   "mxfp4",
                                                                   "mxfp8",  "nvfp4", "nvfp8"};

/// Which axis of a weight [N out, K in] has the groups, and how codes lie: `col` [N,K] with groups
/// of inputs, `row` [K,N] with groups of outputs; `k_major` has the words and scales of `col` the
/// other way round, those of an output below each other.
enum class weight_axis : std::uint8_t { col, row, k_major };
inline constexpr std::array<std::string_view, 3> weight_axis_names{"col", "row", "k_major"};
constexpr bool has_groups_of_inputs(weight_axis axis) noexcept {
  return axis != weight_axis::row;
}

/// How the scale of an mx group is stored: `e8m0` 2^(code - 127), 255 is NaN; `int8` the exponent
/// itself, in two's complement.
enum class mx_scale_encoding : std::uint8_t { e8m0, int8 };
inline constexpr std::array<std::string_view, 2> mx_scale_encoding_names{"e8m0", "int8"};

/// What zeros are: `zero` (code - zero) scale, `bias` code scale + zero.
enum class affine_weight_form : std::uint8_t { zero, bias };
inline constexpr std::array<std::string_view, 2> affine_weight_form_names{"zero", "bias"};

struct quantized_options {
  weight_mode mode = weight_mode::affine;
  std::optional<std::int64_t> bits{};        ///< of a code; unset: the mode's
  std::optional<std::int64_t> group_size{};  ///< weights that share a scale; unset: the mode's
  weight_axis axis = weight_axis::col;
  mx_scale_encoding scale_encoding = mx_scale_encoding::e8m0;  ///< mxfp4 and mxfp8
  affine_weight_form affine_form = affine_weight_form::zero;
  // Of products of groups.
  /// Matrix e of the weights belongs to group group_offset + e of group_sizes. At least 0.
  std::int64_t group_offset = 0;
  /// Which rows of the problem x holds, where there are weights of some groups only.
  grouped_rows x_rows = grouped_rows::global;

  friend bool operator==(const quantized_options&, const quantized_options&) = default;
};

constexpr bool is_mx(weight_mode mode) noexcept {
  return mode == weight_mode::mxfp4 || mode == weight_mode::mxfp8;
}
constexpr bool is_nv(weight_mode mode) noexcept {
  return mode == weight_mode::nvfp4 || mode == weight_mode::nvfp8;
}
/// Codes are elements of E4M3.
constexpr bool has_e4m3_codes(weight_mode mode) noexcept {
  return mode == weight_mode::mxfp8 || mode == weight_mode::nvfp8;
}
/// Scales are floats, not bytes.
constexpr bool has_float_scales(weight_mode mode) noexcept {
  return !is_mx(mode) && !is_nv(mode);
}

/// The bits and the group size that a mode has where nothing is set.
constexpr std::int64_t bits_of(weight_mode mode) noexcept {
  return has_e4m3_codes(mode) ? 8 : 4;
}
constexpr std::int64_t group_size_of(weight_mode mode) noexcept {
  return has_float_scales(mode) ? 64 : is_mx(mode) ? 32 : 16;
}
constexpr std::int64_t bits_of(const quantized_options& options) noexcept {
  return options.bits.value_or(bits_of(options.mode));
}
constexpr std::int64_t group_size_of(const quantized_options& options) noexcept {
  return options.group_size.value_or(group_size_of(options.mode));
}

}  // namespace tessera
