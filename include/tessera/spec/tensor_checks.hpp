// Checks of one tensor view that every operation makes, and the sentences they fail with. A check
// returns true, or writes one sentence (tensor, fact, both numbers) and returns false; successful
// checks allocate nothing. Nothing a caller puts into a view leads to undefined behaviour here.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <tessera/spec/sentence.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::checks {

[[gnu::cold, gnu::noinline]] inline bool refuse_with(status& failure, sentence_parts parts) {
  failure = refusal(status_code::invalid_argument, parts);
  return false;
}

/// Sets `failure` to the sentence made of `parts`; returns false, so that checks can return it.
template <class... Parts>
[[gnu::always_inline]] inline bool refuse(status& failure, const Parts&... parts) {
  return refuse_with(failure, {sentence_part(parts)...});
}

/// A kind there is, with an ordinal that it can have.
inline bool is_device(std::string_view name, device_id device, status& failure) {
  if (device == device_id{}) return true;
  if (device.kind == device_kind::cuda && device.ordinal >= 0) return true;
  return refuse(failure, name, ": device is ", device,
                ", must be cpu:0 or cuda: and a number from ", 0);
}

/// Rank as expected, no negative extent, and no more elements than an int64 counts, where an
/// extent of 0 counts as 1.
inline bool has_rank(std::string_view name, const tensor_view& view, int rank, status& failure) {
  if (view.rank != rank) {
    return refuse(failure, name, ": rank is ", static_cast<int>(view.rank), ", must be ", rank);
  }
  std::int64_t count = 1;
  for (int axis = 0; axis < rank; ++axis) {
    const std::int64_t extent = view.extent[static_cast<std::size_t>(axis)];
    if (extent < 0) {
      return refuse(failure, name, ": extent of axis ", axis, " is ", extent,
                    ", must be at least 0");
    }
    if (__builtin_mul_overflow(count, std::max<std::int64_t>(extent, 1), &count)) {
      return refuse(failure, name, ": extent of axis ", axis, " is ", extent,
                    ", which makes more than 2^63 - 1 elements");
    }
  }
  return true;
}

/// A half-open range of addresses; empty for a tensor without elements.
struct byte_range {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;

  constexpr bool empty() const noexcept { return begin == end; }
};

/// No axis of a tensor spans more elements. Far beyond any memory; keeps the offsets of five axes,
/// in bytes and over a pair of tensors, within an int64.
inline constexpr std::int64_t max_axis_span = std::int64_t{1} << 54;

/// Offsets of the lowest and highest element from `data`, in elements.
struct element_offsets {
  std::int64_t low = 0;
  std::int64_t high = 0;
  bool in_range = true;  ///< no axis beyond max_axis_span
  bool empty = false;    ///< no element at all; the rest means nothing then
};

/// Without branches, since every call passes here: an axis with one element adds nothing.
inline element_offsets offsets_of(const tensor_view& view) noexcept {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool empty = false;
  bool far = false;
  for (int axis = 0; axis < view.rank; ++axis) {
    const auto at = static_cast<std::size_t>(axis);
    std::int64_t reach = 0;
    far |= __builtin_mul_overflow(view.extent[at] - 1, view.stride[at], &reach);
    far |= (reach > max_axis_span) | (reach < -max_axis_span);
    empty |= view.extent[at] == 0;
    low += static_cast<std::uint64_t>(std::min<std::int64_t>(reach, 0));
    high += static_cast<std::uint64_t>(std::max<std::int64_t>(reach, 0));
  }
  return {static_cast<std::int64_t>(low), static_cast<std::int64_t>(high), !far, empty};
}

/// Names the axis that spans too much.
[[gnu::cold]] inline bool refuse_span(std::string_view name, const tensor_view& view,
                                      status& failure) {
  int axis = 0;
  for (tensor_view leading = view; axis + 1 < view.rank; ++axis) {
    leading.rank = static_cast<std::int8_t>(axis + 1);
    if (!offsets_of(leading).in_range) break;
  }
  const auto at = static_cast<std::size_t>(axis);
  return refuse(failure, name, ": axis ", axis, " has extent ", view.extent[at], " and stride ",
                view.stride[at], ", which span more than ", max_axis_span, " elements");
}

/// The bytes of a tensor whose rank and extents have been checked. Refuses a null or misaligned
/// pointer with elements behind it, and extents and strides that leave the address space.
inline bool has_memory(std::string_view name, const tensor_view& view, byte_range& range,
                       status& failure) {
  range = {};
  const element_offsets offsets = offsets_of(view);
  if (offsets.empty) return true;
  if (view.data == nullptr) {
    return refuse(failure, name, ": data is null, the shape has ", view.elements(), " elements");
  }
  const auto address = reinterpret_cast<std::uintptr_t>(view.data);
  const std::uintptr_t size = size_of(view.type);
  if ((address & (size - 1)) != 0) {  // sizes are powers of two
    return refuse(failure, name, ": address is ", address & (size - 1),
                  " bytes past a multiple of ", size, ", the size of ", name_of(view.type));
  }
  if (!offsets.in_range) return refuse_span(name, view, failure);
  const std::uintptr_t before = static_cast<std::uintptr_t>(-offsets.low) * size;
  const std::uintptr_t after = static_cast<std::uintptr_t>(offsets.high) * size + size;
  if (before > address || after > UINTPTR_MAX - address) {
    return refuse(failure, name, ": extents and strides reach from ", offsets.low, " to ",
                  offsets.high, " elements around the address, beyond the address space");
  }
  range = {address - before, address + after};
  return true;
}

/// The last axis has stride 1, unless it has one element.
inline bool has_contiguous_rows(std::string_view name, const tensor_view& view, status& failure) {
  const auto last = static_cast<std::size_t>(view.rank - 1);
  if (view.stride[last] == 1 || view.extent[last] <= 1) return true;
  return refuse(failure, name, ": stride of the last axis is ", view.stride[last], ", must be 1");
}

/// The last axis whose stride does not exceed the span of the axes after it, -1 if there is none
/// (row-major, with or without gaps). `span` is that of the axes after it, in elements.
inline int folded_axis(const tensor_view& view, std::int64_t& span) noexcept {
  span = 0;
  int axis = view.rank - 1;
  for (; axis >= 0; --axis) {
    const auto at = static_cast<std::size_t>(axis);
    if (view.extent[at] <= 1) continue;
    if (view.stride[at] <= span) break;
    span += view.stride[at] * (view.extent[at] - 1);
  }
  return axis;
}

/// An output: writable, and no two elements share memory. Sorted by size, each stride must exceed
/// the span of the smaller ones; strides that interleave in other ways are refused although their
/// elements may be distinct.
inline bool has_distinct_elements(std::string_view name, const tensor_view& view, status& failure) {
  if (view.read_only) return refuse(failure, name, ": is read-only, and an output");
  std::int64_t span = 0;
  if (folded_axis(view, span) < 0) return true;
  tensor_view sorted = view;
  for (int axis = 0; axis < view.rank; ++axis) {
    auto at = static_cast<std::size_t>(axis);
    sorted.stride[at] = view.extent[at] > 1 ? std::abs(view.stride[at]) : 0;
    for (; at > 0 && sorted.stride[at] > sorted.stride[at - 1]; --at) {
      std::swap(sorted.stride[at], sorted.stride[at - 1]);
      std::swap(sorted.extent[at], sorted.extent[at - 1]);
    }
  }
  const int axis = folded_axis(sorted, span);
  if (axis < 0) return true;
  return refuse(failure, name, ": a stride is ", sorted.stride[static_cast<std::size_t>(axis)],
                ", the axes with smaller strides span ", span + 1,
                " elements; elements of an output must not share memory");
}

}  // namespace tessera::checks
