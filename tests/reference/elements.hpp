// Reading and rounding single tensor elements, whatever their type and strides.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/spec/tensor_view.hpp>

#include "float8.hpp"

namespace tessera::reference {

template <class Element>
Element load(const void* data, std::int64_t offset) noexcept {
  Element element;
  std::memcpy(
      &element,
      static_cast<const std::byte*>(data) + offset * static_cast<std::int64_t>(sizeof(Element)),
      sizeof(Element));
  return element;
}

/// Whether elements have fractions that tests read and write.
inline bool is_floating(dtype type) noexcept {
  return is_floating_16_or_32(type) || type == dtype::f64;
}

/// Element at `offset` (in elements) from the view's first element, as a double.
inline double read(const tensor_view& view, std::int64_t offset) noexcept {
  switch (view.type) {
    case dtype::f32:
      return static_cast<double>(load<float>(view.data, offset));
    case dtype::f64:
      return load<double>(view.data, offset);
    case dtype::f16:
      return static_cast<double>(static_cast<float>(load<f16>(view.data, offset)));
    case dtype::bf16:
      return static_cast<double>(static_cast<float>(load<bf16>(view.data, offset)));
    case dtype::i32:
      return static_cast<double>(load<std::int32_t>(view.data, offset));
    case dtype::i64:
      return static_cast<double>(load<std::int64_t>(view.data, offset));
    case dtype::u8:
      return static_cast<double>(load<std::uint8_t>(view.data, offset));
    case dtype::i8:
      return static_cast<double>(load<std::int8_t>(view.data, offset));
    case dtype::u32:
      return static_cast<double>(load<std::uint32_t>(view.data, offset));
    case dtype::f8_e4m3:
    case dtype::f8_e5m2:
      return value_of_code(view.type, load<std::uint8_t>(view.data, offset));
    case dtype::none:
    case dtype::f8_e8m0:
    case dtype::u4x2:
      break;
  }
  return 0.0;
}

/// Offset of a tensor element; an axis of extent 1 broadcasts. `index` has one entry per axis.
template <std::size_t Rank>
std::int64_t offset_of(const tensor_view& view, const std::array<std::int64_t, Rank>& index) {
  std::int64_t offset = 0;
  for (std::size_t axis = 0; axis < Rank; ++axis) {
    if (view.extent[axis] != 1) offset += index[axis] * view.stride[axis];
  }
  return offset;
}

template <class... Index>
double at(const tensor_view& view, Index... index) {
  return read(view, offset_of(view, std::array<std::int64_t, sizeof...(Index)>{index...}));
}

/// Calls `visit(flat, offset)` for each element in row-major order: its position in that order and
/// its distance, in elements, from the view's first element.
template <class Visit>
void for_each_element(const tensor_view& view, Visit visit) {
  std::array<std::int64_t, max_rank> index{};
  const std::int64_t count = view.elements();
  for (std::int64_t flat = 0; flat < count; ++flat) {
    std::int64_t offset = 0;
    for (int axis = 0; axis < view.rank; ++axis) {
      const auto a = static_cast<std::size_t>(axis);
      offset += index[a] * view.stride[a];
    }
    visit(flat, offset);
    for (int axis = view.rank - 1; axis >= 0; --axis) {
      const auto a = static_cast<std::size_t>(axis);
      if (++index[a] < view.extent[a]) break;
      index[a] = 0;
    }
  }
}

/// The whole tensor in row-major order.
inline std::vector<double> to_doubles(const tensor_view& view) {
  std::vector<double> values(static_cast<std::size_t>(view.elements()));
  for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
    values[static_cast<std::size_t>(flat)] = read(view, offset);
  });
  return values;
}

/// Elements of a tensor that somebody reads, by offset from its first element.
class seen_elements {
 public:
  seen_elements() = default;
  explicit seen_elements(const tensor_view& view) : known_(true) {
    if (!view.present() || view.elements() == 0) return;
    std::int64_t highest = 0;
    for (int axis = 0; axis < view.rank; ++axis) {
      const auto a = static_cast<std::size_t>(axis);
      const std::int64_t reach = (view.extent[a] - 1) * view.stride[a];
      (reach < 0 ? lowest_ : highest) += reach;
    }
    flags_.assign(static_cast<std::size_t>(highest - lowest_ + 1), false);
  }
  /// Whether anything is said at all.
  bool known() const noexcept { return known_; }
  /// `count` elements side by side, which are always marked together.
  void mark(std::int64_t offset, std::int64_t count = 1) {
    if (count <= 0 || (*this)[offset]) return;
    const auto begin = flags_.begin() + (offset - lowest_);
    std::fill(begin, begin + count, true);
  }
  bool operator[](std::int64_t offset) const {
    return flags_[static_cast<std::size_t>(offset - lowest_)];
  }

 private:
  bool known_ = false;
  std::int64_t lowest_ = 0;
  std::vector<bool> flags_;
};

/// `value` as a tensor of that type holds it; types that are not floating leave it alone.
inline float rounded_to(dtype type, float value) noexcept {
  if (type == dtype::f16) return static_cast<float>(f16(value));
  if (type == dtype::bf16) return static_cast<float>(bf16(value));
  if (type == dtype::i8) {
    return value == value ? std::clamp(std::nearbyint(value), -128.0f, 127.0f) : 0.0f;
  }
  if (type == dtype::f8_e4m3 || type == dtype::f8_e5m2) {
    return static_cast<float>(value_of_code(type, nearest_code(type, static_cast<double>(value))));
  }
  return value;
}

}  // namespace tessera::reference
