// Memory with canaries on both sides, for what a row writes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "bench/support/memory.hpp"

namespace tessera::tuner {

/// `size` bytes, 64-byte aligned, between two bands that a row must leave alone. Everything is
/// 0xff, which floating-point types read as NaN: what a row does not write is noticed as well.
class guarded_memory {
 public:
  static constexpr std::size_t band = 512;  // more than the widest store of any row, several times
  static constexpr int pattern = 0xff;

  guarded_memory() = default;

  /// Makes it that large; the contents are whatever was there.
  void resize(std::size_t size) {
    if (memory_.size() < size + 2 * band) memory_ = bench::buffer(size + 2 * band);
    size_ = size;
  }
  /// The same with the pattern everywhere.
  void reset(std::size_t size) {
    resize(size);
    std::memset(memory_.data(), pattern, size + 2 * band);
  }

  /// Bands and bytes.
  std::span<std::byte> all() const noexcept {
    return {memory_.data(), memory_.data() == nullptr ? 0 : size_ + 2 * band};
  }

  std::span<std::byte> bytes() const noexcept {
    return {memory_.data() == nullptr ? nullptr : memory_.data() + band, size_};
  }

  /// True if nobody wrote before or behind the bytes.
  bool intact() const noexcept {
    const auto untouched = [](std::byte byte) { return byte == std::byte{pattern}; };
    const std::byte* const begin = memory_.data();
    return begin == nullptr ||
           (std::all_of(begin, begin + band, untouched) &&
            std::all_of(begin + band + size_, begin + 2 * band + size_, untouched));
  }

 private:
  bench::buffer memory_;
  std::size_t size_ = 0;
};

}  // namespace tessera::tuner
