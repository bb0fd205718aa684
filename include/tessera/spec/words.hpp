// Words and numbers in text.
#pragma once

#include <array>
#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

namespace tessera::text {

inline constexpr std::string_view blanks = " \t\r\n";

template <class Number>
void append_number(std::string& out, Number value) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out.append(digits.data(), end);
}

/// True if all of `word` was read as a number.
template <class Number>
bool read_number(std::string_view word, Number& value) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc{} && end == word.data() + word.size();
}

/// Without the blanks around it.
inline std::string_view trimmed(std::string_view text) noexcept {
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

/// What stands before the first `divider`; `rest` loses both.
inline std::string_view split_off(std::string_view& rest, char divider) noexcept {
  const std::string_view part = rest.substr(0, rest.find(divider));
  rest.remove_prefix(part.size() < rest.size() ? part.size() + 1 : part.size());
  return part;
}

/// The first word; `rest` loses it and the blanks around it.
inline std::string_view next_word(std::string_view& rest) noexcept {
  rest = trimmed(rest);
  const std::string_view word = rest.substr(0, rest.find_first_of(blanks));
  rest.remove_prefix(word.size());
  return word;
}

}  // namespace tessera::text
