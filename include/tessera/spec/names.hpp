// Names of enumerators that count from 0, and the classes of members.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace tessera {

/// The name at the number of an enumerator; "invalid" for numbers that have none.
template <std::size_t Count, class Enum>
constexpr std::string_view name_in(const std::array<std::string_view, Count>& names,
                                   Enum value) noexcept {
  const auto number = static_cast<std::size_t>(value);
  return number < Count ? names[number] : "invalid";
}

/// In decltype: the class that a pointer to a member is of.
template <class Class, class Value>
Class class_of_member(Value Class::*);

/// What a member of an object holds, or what a member function of no arguments returns.
template <class Value, class Class>
constexpr auto member_value(const Class& object, Value Class::*member) noexcept {
  if constexpr (std::is_function_v<Value>) {
    return (object.*member)();
  } else {
    return object.*member;
  }
}

}  // namespace tessera
