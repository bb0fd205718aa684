// A tensor inside a larger block of memory whose every other byte is known. Guard bands lie on both
// sides and in the gaps that strides leave; they read as NaN in every floating type, as -1 in
// int32 and as 255 in u8, and must be bit-identical after a call.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/spec/tensor_view.hpp>

#include "../reference/elements.hpp"
#include "../reference/store.hpp"

namespace tessera::support {

/// How a tensor lies in memory. The default is row-major without gaps.
struct tensor_layout {
  std::array<std::int8_t, max_rank> order{0, 1, 2, 3, 4};  ///< axes, outermost first
  std::array<std::int8_t, max_rank> padding{};             ///< unused steps after each axis
  std::array<bool, max_rank> reversed{};                   ///< negative stride
  std::array<bool, max_rank> broadcast{};                  ///< stride 0
  std::int8_t shift = 0;                                   ///< elements from a 64-byte boundary
};

inline constexpr std::byte guard_byte{0xFF};

using reference::store;

/// Owns the memory of one tensor. Default-constructed: absent.
class guarded_tensor {
 public:
  guarded_tensor() = default;

  guarded_tensor(dtype type, int rank, const std::array<std::int64_t, max_rank>& extent,
                 const tensor_layout& layout = {}) {
    view_.type = type;
    view_.rank = static_cast<std::int8_t>(rank);
    view_.extent = extent;
    std::int64_t step = 1;
    std::int64_t first = 0;
    for (int level = max_rank - 1; level >= 0; --level) {
      const auto axis = static_cast<std::size_t>(layout.order[static_cast<std::size_t>(level)]);
      if (static_cast<int>(axis) >= rank || layout.broadcast[axis]) continue;
      view_.stride[axis] = layout.reversed[axis] ? -step : step;
      if (layout.reversed[axis] && extent[axis] > 0) first += step * (extent[axis] - 1);
      step *= extent[axis] + layout.padding[axis];
    }
    const auto size = static_cast<std::int64_t>(size_of(type));
    bytes_.assign(static_cast<std::size_t>(step * size + 2 * guard + 64), guard_byte);
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    const std::int64_t align = static_cast<std::int64_t>((64 - address % 64) % 64);
    begin_ = guard + align + layout.shift * size + first * size;
    view_.data = bytes_.data() + begin_;
  }

  guarded_tensor(guarded_tensor&&) = default;
  guarded_tensor& operator=(guarded_tensor&&) = default;

  const tensor_view& view() const noexcept { return view_; }
  bool present() const noexcept { return view_.present(); }

  /// Fills every element with `next(flat)`.
  template <class Next>
  void fill(Next next) {
    reference::for_each_element(view_, [&](std::int64_t flat, std::int64_t offset) {
      store(view_, offset, static_cast<double>(next(flat)));
    });
  }

  /// Puts back the guard pattern everywhere, elements included.
  void reset() { std::fill(bytes_.begin(), bytes_.end(), guard_byte); }

  /// Puts back bytes that were there before.
  void restore(const std::vector<std::byte>& bytes) {
    std::copy(bytes.begin(), bytes.end(), bytes_.begin());
  }

  /// True if nothing but elements has been written.
  bool margins_intact() const {
    if (bytes_.empty()) return true;
    std::vector<std::byte> margins = bytes_;
    const auto size = static_cast<std::int64_t>(size_of(view_.type));
    reference::for_each_element(view_, [&](std::int64_t, std::int64_t offset) {
      std::fill_n(margins.begin() + begin_ + offset * size, size, guard_byte);
    });
    // Every byte is as the one before it.
    return margins.front() == guard_byte &&
           std::memcmp(margins.data(), margins.data() + 1, margins.size() - 1) == 0;
  }

  /// True if nothing at all has been written since construction or `reset`.
  bool untouched() const {
    for (const std::byte byte : bytes_) {
      if (byte != guard_byte) return false;
    }
    return true;
  }

  /// FNV-1a over eight bytes at a time, continued from `digest`.
  std::uint64_t digest(std::uint64_t digest) const {
    for (std::size_t n = 0; n + 8 <= bytes_.size(); n += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes_.data() + n, 8);
      digest = (digest ^ word) * 1099511628211u;
    }
    return digest;
  }

  const std::vector<std::byte>& bytes() const noexcept { return bytes_; }

 private:
  static constexpr std::int64_t guard = 320;  // more than the widest vector store, twice over

  std::vector<std::byte> bytes_;
  std::int64_t begin_ = 0;
  tensor_view view_{};
};

}  // namespace tessera::support
