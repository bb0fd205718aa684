// Sentences for people from texts, numbers and devices. All of them share this code, whatever they
// say.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <string_view>

#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// One part of a sentence.
class sentence_part {
 public:
  constexpr sentence_part(std::string_view text) noexcept : kind_(kind::text), text_(text) {}
  constexpr sentence_part(const char* text) noexcept : sentence_part(std::string_view(text)) {}
  sentence_part(const std::string& text) noexcept : sentence_part(std::string_view(text)) {}
  template <std::signed_integral Integer>
  constexpr sentence_part(Integer number) noexcept : kind_(kind::number), number_(number) {}
  template <std::unsigned_integral Integer>
  constexpr sentence_part(Integer number) noexcept : kind_(kind::natural), natural_(number) {}
  constexpr sentence_part(double number) noexcept : kind_(kind::real), real_(number) {}
  constexpr sentence_part(device_id device) noexcept : kind_(kind::device), device_(device) {}

  void append_to(std::string& sentence) const {
    switch (kind_) {
      case kind::text:
        sentence += text_;
        return;
      case kind::number:
        if (number_ < 0) sentence += '-';
        return append_natural(sentence, number_ < 0 ? 0 - static_cast<std::uint64_t>(number_)
                                                    : static_cast<std::uint64_t>(number_));
      case kind::natural:
        return append_natural(sentence, natural_);
      case kind::real: {
        std::array<char, 32> digits{};
        std::snprintf(digits.data(), digits.size(), "%.17g", real_);
        sentence += digits.data();
        return;
      }
      case kind::device:
        return append_device(sentence);
    }
  }

 private:
  enum class kind : std::uint8_t { text, number, natural, real, device };

  static void append_natural(std::string& sentence, std::uint64_t number) {
    std::array<char, 24> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    sentence.append(digits.data(), static_cast<std::size_t>(end - digits.data()));
  }
  void append_device(std::string& sentence) const {
    if (device_.kind == device_kind::cpu) {
      sentence += "cpu:";
    } else if (device_.kind == device_kind::cuda) {
      sentence += "cuda:";
    } else {
      sentence += "kind ";
      append_natural(sentence, static_cast<std::uint64_t>(device_.kind));
      sentence += ':';
    }
    sentence_part(device_.ordinal).append_to(sentence);
  }

  kind kind_;
  union {
    std::string_view text_;
    std::int64_t number_;
    std::uint64_t natural_;
    double real_;
    device_id device_;
  };
};

using sentence_parts = std::initializer_list<sentence_part>;

[[gnu::cold, gnu::noinline]] inline void append(std::string& text, sentence_parts parts) {
  for (const sentence_part& part : parts) part.append_to(text);
}

[[gnu::cold, gnu::noinline]] inline std::string sentence(sentence_parts parts) {
  std::string text;
  append(text, parts);
  return text;
}

[[gnu::cold, gnu::noinline]] inline status refusal(status_code code, sentence_parts parts) {
  return {code, sentence(parts)};
}

}  // namespace tessera
