// Names of enumerators that count from 0.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace tessera {

/// The name at the number of an enumerator; "invalid" for numbers that have none.
template <std::size_t Count, class Enum>
constexpr std::string_view name_in(const std::array<std::string_view, Count>& names,
                                   Enum value) noexcept {
  const auto number = static_cast<std::size_t>(value);
  return number < Count ? names[number] : "invalid";
}

}  // namespace tessera
