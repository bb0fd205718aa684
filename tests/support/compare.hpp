// How a result is judged: NaN and Inf stand where they stand in the reference; everything else is a
// scaled error against a bound that is computed, never chosen.
//
// | tensor | scale of an element's error |
// |---|---|
// | out, weights | the row's largest |reference| over the last axis, at least 1 % of the tensor's |
// | lse, row_max | max(1, |reference|) |
// | gradients | the tensor's largest |reference| |
// | whole numbers (dropout_mask) | equal, bit for bit |
//
// bound = max(2 x error of a peer, floor): the peer is the same formula evaluated in the tensors'
// own precision (generated problems, flash_judge.hpp) or the program that made a golden file.
// Floors are those measured for the golden files: f32 5e-6, f16 1e-3, bf16 8e-3; lse and row_max
// have f32's.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/spec/tensor_view.hpp>

namespace tessera::support {

enum class error_scale : std::uint8_t { row, unit, tensor, equal };

/// The scale that belongs to a tensor's name.
inline error_scale scale_of(std::string_view tensor) noexcept {
  if (tensor == "lse" || tensor == "row_max") return error_scale::unit;
  if (tensor == "dropout_mask") return error_scale::equal;
  return tensor.starts_with("d_") ? error_scale::tensor : error_scale::row;
}

/// The smallest bound of a tensor; `type` is that of q.
inline double floor_of(std::string_view tensor, dtype type) noexcept {
  if (tensor == "dropout_mask") return 0.0;
  if (tensor == "lse" || tensor == "row_max") return 5e-6;
  if (type == dtype::f16) return 1e-3;
  return type == dtype::bf16 ? 8e-3 : 5e-6;
}

/// How far one tensor is from its reference.
struct comparison {
  bool passed = false;
  bool specials_agree = true;  ///< NaN and Inf stand where they stand in the reference
  double error = 0.0;          ///< largest scaled error of the finite elements
  double bound = 0.0;
  std::int64_t worst = -1;  ///< row-major position of that error, or of the first wrong NaN or Inf
  double ours = 0.0;        ///< the two values there
  double expected = 0.0;
};

/// Largest finite magnitude; 0 for none.
inline double largest(std::span<const double> values) noexcept {
  double most = 0.0;
  for (const double value : values) {
    if (std::isfinite(value)) most = std::max(most, std::fabs(value));
  }
  return most;
}

/// Compares element by element in row-major order; `unit(index)` is the scale of an element's
/// error. The bound is left to `judged`.
template <class Unit>
comparison compare_in_units(std::span<const double> ours, std::span<const double> expected,
                            Unit unit) {
  comparison result;
  if (ours.size() != expected.size()) {
    result.specials_agree = false;
    result.error = HUGE_VAL;
    return result;
  }
  const auto note = [&](std::size_t index) {
    result.worst = static_cast<std::int64_t>(index);
    result.ours = ours[index];
    result.expected = expected[index];
  };
  for (std::size_t index = 0; index < expected.size(); ++index) {
    const double want = expected[index];
    const double have = ours[index];
    if (!std::isfinite(want) || !std::isfinite(have)) {
      const bool same = std::isnan(want) ? std::isnan(have) : have == want;
      if (!same && result.specials_agree) {
        result.specials_agree = false;
        note(index);
      }
      continue;
    }
    const double difference = std::fabs(have - want);
    const double error = difference == 0.0 ? 0.0 : difference / unit(index);
    if (error > result.error) {
      result.error = error;
      if (result.specials_agree) note(index);
    }
  }
  return result;
}

/// The same with the scale of a golden file's tensor; `row_length` is the extent of the last axis.
/// A tensor whose elements are below 1e-6 of `cancelling` has that for its scale.
inline comparison compare(std::span<const double> ours, std::span<const double> expected,
                          std::int64_t row_length, error_scale scale, double cancelling = 0.0) {
  double tensor_scale = largest(expected);
  if (tensor_scale < 1e-6 * cancelling) tensor_scale = cancelling;
  const auto width = static_cast<std::size_t>(std::max<std::int64_t>(row_length, 1));
  std::vector<double> row_scale;
  if (scale == error_scale::row) {
    for (std::size_t begin = 0; begin < expected.size(); begin += width) {
      const auto row = expected.subspan(begin, std::min(width, expected.size() - begin));
      row_scale.push_back(std::max(largest(row), 0.01 * tensor_scale));
    }
  }
  return compare_in_units(ours, expected, [&](std::size_t index) {
    if (scale == error_scale::row) return row_scale[index / width];
    return scale == error_scale::unit ? std::max(1.0, std::fabs(expected[index])) : tensor_scale;
  });
}

/// The verdict: specials first, then the error against the larger of twice the peer's error and
/// the floor.
inline comparison judged(comparison found, double peer_error, double floor) noexcept {
  found.bound = std::max(2.0 * peer_error, floor);
  found.passed = found.specials_agree && found.error <= found.bound;
  return found;
}

/// "out: scaled error 3.1e-02 at [0,5,1,7] (0.25, reference 0.26), bound 5.0e-06".
inline std::string sentence_of(const comparison& found, std::string_view tensor,
                               const tensor_shape& shape) {
  std::string position = "[";
  std::int64_t rest = std::max<std::int64_t>(found.worst, 0);
  std::array<std::int64_t, max_rank> index{};
  for (int axis = shape.rank - 1; axis >= 0; --axis) {
    const auto a = static_cast<std::size_t>(axis);
    const std::int64_t extent = std::max<std::int64_t>(shape.extent[a], 1);
    index[a] = rest % extent;
    rest /= extent;
  }
  for (int axis = 0; axis < shape.rank; ++axis) {
    if (axis > 0) position += ',';
    position += std::to_string(index[static_cast<std::size_t>(axis)]);
  }
  position += ']';
  std::array<char, 160> values{};
  std::snprintf(values.data(), values.size(), "scaled error %.3g, bound %.3g; %.9g, reference %.9g",
                found.error, found.bound, found.ours, found.expected);
  std::string text(tensor);
  text += found.specials_agree ? ": " : ": NaN or Inf in the wrong place; ";
  text += values.data();
  return text + " at " + position;
}

}  // namespace tessera::support
