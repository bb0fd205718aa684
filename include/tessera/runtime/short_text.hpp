// Text of limited length on the stack: keys and classes are spelled without allocating.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <string_view>

namespace tessera {

/// At most `Capacity` characters. What does not fit is dropped and remembered in `complete`.
template <std::size_t Capacity>
class short_text {
 public:
  constexpr short_text() = default;

  constexpr short_text& operator+=(std::string_view more) noexcept {
    for (const char one : more) *this += one;
    return *this;
  }
  constexpr short_text& operator+=(char one) noexcept {
    if (size_ == Capacity) {
      complete_ = false;
    } else {
      text_[size_++] = one;
    }
    return *this;
  }
  template <std::integral Number>
  short_text& append(Number value) noexcept {
    std::array<char, 24> digits;  // NOLINT: filled up to `end`
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    return *this += std::string_view(digits.data(), static_cast<std::size_t>(end - digits.data()));
  }

  /// Lets `write(buffer, room)` append; it returns the length it would need.
  template <class Writer>
  short_text& append_with(const Writer& write) noexcept {
    const std::size_t room = Capacity - size_;
    const std::size_t length = write(text_.data() + size_, room);
    complete_ = complete_ && length <= room;
    size_ += length < room ? length : room;
    return *this;
  }

  constexpr bool complete() const noexcept { return complete_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr std::string_view view() const noexcept { return {text_.data(), size_}; }
  constexpr operator std::string_view() const noexcept { return view(); }  // NOLINT

 private:
  std::array<char, Capacity> text_{};
  std::size_t size_ = 0;
  bool complete_ = true;
};

}  // namespace tessera
