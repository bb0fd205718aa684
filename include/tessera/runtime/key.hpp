// Keys of lookup tables as text. A key has four parts: the family, the class of the device, the
// identity (compared exactly) and the size (whole numbers that stand for a bucket). The texts are
// canonical: one space between `name=value` pairs, in the family's order.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/runtime/policy.hpp>
#include <tessera/spec/copy.hpp>

namespace tessera {

/// Text on the stack: keys and classes are spelled without allocating.
/// At most `Capacity` characters. What does not fit is dropped and remembered in `complete`.
template <std::size_t Capacity>
class short_text {
 public:
  short_text() noexcept {}  // NOLINT: filled up to `size_`

  short_text& operator+=(std::string_view more) noexcept {
    const std::size_t added = std::min(more.size(), Capacity - size_);
    if (added > 0) {  // no text may have no address
      copy_bytes(reinterpret_cast<std::byte*>(text_.data() + size_), more.data(), added);
    }
    size_ += added;
    complete_ &= added == more.size();
    return *this;
  }
  short_text& operator+=(char letter) noexcept {
    if (size_ < Capacity) {
      text_[size_++] = letter;
    } else {
      complete_ = false;
    }
    return *this;
  }
  template <std::integral Number>
  short_text& append(Number value) noexcept {
    std::array<char, 24> digits;  // NOLINT: filled up to `end`
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    return *this += std::string_view(digits.data(), static_cast<std::size_t>(end - digits.data()));
  }

  bool complete() const noexcept { return complete_; }
  bool empty() const noexcept { return size_ == 0; }
  std::string_view view() const noexcept { return {text_.data(), size_}; }
  operator std::string_view() const noexcept { return view(); }  // NOLINT

 private:
  std::array<char, Capacity> text_;
  std::size_t size_ = 0;
  bool complete_ = true;
};

inline constexpr std::size_t max_key_text = 352;
using key_line = short_text<max_key_text>;

/// The part of a key that belongs to the problem.
struct key_text {
  key_line identity;
  key_line size;
};

using device_class_text = short_text<96>;

/// What makes timings comparable: "cpu_avx512_bf16.l1d=32K.l2=1M.cores=8". The cores of the
/// machine count up to the next power of two; caches are those of one core. Of a GPU:
/// "cuda_cc90.sms=132.l2=60M.shared=227K.memory=4800G", its bandwidth rounded to 100 GB/s.
device_class_text device_class_of(const device_facts& device) noexcept;

/// The smallest power of two that is at least `size`; 0 for sizes below 1.
constexpr std::int64_t bucket_top(std::int64_t size) noexcept {
  constexpr std::int64_t largest = std::int64_t{1} << 62;
  if (size < 1) return 0;
  if (size > largest) return largest;
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(size)));
}

/// The key of a demand of that family. On CPUs the number of threads is a size; a promise that the
/// policy asks for is part of the identity.
key_text key_text_of(const family& kind, const demand& asked, int threads, device_kind device,
                     bits_promise promise = bits_promise::none) noexcept;

/// A field's value as text: a word, the words of a set joined by '+', or a number.
key_line text_of(const demand_field& field, std::int64_t value) noexcept;

}  // namespace tessera
