// Fields of described structs: key text, fields by name, and the proof that every field of a
// problem has a class.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/runtime/family.hpp>
#include <tessera/runtime/key.hpp>
#include <tessera/spec/reflect.hpp>

namespace tessera::impl {

/// A value as one word. Sets of features and the like bring their own overload.
template <class Value>
requires std::is_arithmetic_v<Value> || std::is_enum_v<Value>
void append_word(key_line& text, const Value& value) {
  if constexpr (std::same_as<Value, bool>) {
    text += value ? "true" : "false";
  } else if constexpr (std::is_enum_v<Value>) {
    text += enumerator_name(value);
  } else {
    text.append(value);
  }
}

/// Copies a text to `to`, at most `room` characters; returns its length.
inline std::size_t copy_text(const key_line& text, char* to, std::size_t room) noexcept {
  const std::string_view all = text.view();
  all.copy(to, room);
  return text.complete() ? all.size() : room + 1;
}

/// "name=value name=value" of the members of a struct, each spelled by append(text, name, value).
template <class Struct, class Append>
std::size_t members_text(const Struct& from, char* to, std::size_t room, const Append& append) {
  key_line text;
  for_each_member(from, [&](std::string_view name, const auto& value) {
    if (!text.empty()) text += ' ';
    (text += name) += '=';
    append(text, name, value);
  });
  return copy_text(text, to, room);
}

/// Calls visit(name, value) for the members of a struct; members that are structs give theirs.
template <class Struct, class Visitor>
void for_each_field(const Struct& from, const Visitor& visit) {
  for_each_member(from, [&](std::string_view name, const auto& value) {
    key_line unused;
    if constexpr (requires { append_word(unused, value); }) {
      visit(name, value);
    } else {
      for_each_field(value, visit);
    }
  });
}

/// The names of `for_each_field`.
template <class Struct>
std::span<const std::string_view> field_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    for_each_field(Struct{}, [&](std::string_view name, const auto&) { all.push_back(name); });
    return all;
  }();
  return names;
}

/// The field of that name.
template <class Struct>
std::optional<field_value> field_in(const Struct& from, std::string_view wanted) {
  std::optional<field_value> found;
  for_each_field(from, [&](std::string_view name, const auto& value) {
    using type = std::remove_cvref_t<decltype(value)>;
    if (name != wanted) return;
    key_line word;
    append_word(word, value);
    found = field_value{std::string(word.view()), std::nullopt};
    if constexpr (std::integral<type> && !std::same_as<type, bool>) found->number = value;
  });
  return found;
}

/// Converts to anything: stands for a member's initialiser.
struct any_value {
  template <class Type>
  operator Type() const;  // NOLINT(google-explicit-constructor)
};

/// Number of members of an aggregate, described or not.
template <class Aggregate, class... Values>
consteval std::size_t member_arity() {
  if constexpr (requires { Aggregate{Values{}..., any_value{}}; }) {
    return member_arity<Aggregate, Values..., any_value>();
  } else {
    return sizeof...(Values);
  }
}

/// True if every member of `Struct` is described and, but for those named in `elsewhere`, has
/// exactly one class in `classes`; adds their number to `counted`.
template <class Struct, std::size_t Count>
consteval bool members_are_classified(const std::array<field_class, Count>& classes,
                                      std::string_view elsewhere, std::size_t& counted) {
  bool complete = member_arity<Struct>() == member_count<Struct>;
  boost::mp11::mp_for_each<boost::describe::describe_members<Struct, boost::describe::mod_public>>(
      [&](auto member) {
        const std::string_view name = member.name;
        if (name == elsewhere) return;
        std::size_t found = 0;
        for (const field_class& one : classes) found += one.field == name ? 1 : 0;
        complete = complete && found == 1;
        ++counted;
      });
  return complete;
}

/// True if `classes` holds every field of the problem and of its member `options`, and nothing
/// else.
template <class Problem, class Options, std::size_t Count>
consteval bool every_field_is_classified(const std::array<field_class, Count>& classes) {
  std::size_t counted = 0;
  return members_are_classified<Problem>(classes, "options", counted) &&
         members_are_classified<Options>(classes, "", counted) && counted == Count;
}

}  // namespace tessera::impl
