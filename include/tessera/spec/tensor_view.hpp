// A tensor somebody else owns: pointer, element type, extents, strides, device. Nothing is copied.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include <tessera/spec/dtype.hpp>

namespace tessera {

/// Where a tensor's memory lives.
enum class device_kind : std::uint8_t { cpu, cuda };

/// A kind and an ordinal; CPU tensors have ordinal 0.
struct device_id {
  device_kind kind = device_kind::cpu;
  std::int32_t ordinal = 0;
  friend constexpr bool operator==(device_id, device_id) = default;
};

inline constexpr int max_rank = 5;

/// Dtype and extents without a pointer: what a problem remembers of a tensor. Rank 0 with dtype
/// `none` means absent.
struct tensor_shape {
  dtype type = dtype::none;
  std::int8_t rank = 0;
  std::array<std::int64_t, max_rank> extent{};

  constexpr bool present() const noexcept { return type != dtype::none; }
  friend constexpr bool operator==(const tensor_shape&, const tensor_shape&) = default;
};

/// A strided, non-owning tensor. A default-constructed view is absent. Strides count elements and
/// may be 0 (broadcast) or negative; `data` points at element (0, 0, ...).
struct tensor_view {
  void* data = nullptr;
  dtype type = dtype::none;
  std::int8_t rank = 0;
  bool read_only = false;
  device_id device{};
  std::array<std::int64_t, max_rank> extent{};
  std::array<std::int64_t, max_rank> stride{};

  constexpr bool present() const noexcept { return type != dtype::none; }

  /// Product of the extents; 1 for rank 0 and absent views.
  constexpr std::int64_t elements() const noexcept {
    std::int64_t count = 1;
    for (int axis = 0; axis < rank; ++axis) count *= extent[static_cast<std::size_t>(axis)];
    return count;
  }

  constexpr tensor_shape shape() const noexcept { return {type, rank, extent}; }
};

/// Row-major strides for `extent`: the last axis has stride 1.
constexpr std::array<std::int64_t, max_rank> contiguous_strides(
    const std::array<std::int64_t, max_rank>& extent, int rank) noexcept {
  std::array<std::int64_t, max_rank> stride{};
  std::int64_t step = 1;
  for (int axis = rank - 1; axis >= 0; --axis) {
    stride[static_cast<std::size_t>(axis)] = step;
    step *= extent[static_cast<std::size_t>(axis)];
  }
  return stride;
}

/// A view of typed memory. `extent` has 1 to 5 entries; `stride` (in elements) defaults to
/// row-major. A pointer to const gives a read-only view, which cannot be an output.
template <class Element>
constexpr tensor_view view(Element* data, std::initializer_list<std::int64_t> extent,
                           std::initializer_list<std::int64_t> stride = {},
                           device_id device = {}) noexcept {
  assert(extent.size() <= static_cast<std::size_t>(max_rank));
  assert(stride.size() == 0 || stride.size() == extent.size());
  tensor_view result;
  result.data = const_cast<std::remove_const_t<Element>*>(data);
  result.type = dtype_of<std::remove_const_t<Element>>::value;
  result.rank = static_cast<std::int8_t>(extent.size());
  result.read_only = std::is_const_v<Element>;
  result.device = device;
  std::size_t axis = 0;
  for (const std::int64_t size : extent) result.extent[axis++] = size;
  result.stride = contiguous_strides(result.extent, result.rank);
  axis = 0;
  for (const std::int64_t step : stride) result.stride[axis++] = step;
  return result;
}

}  // namespace tessera
