// Options of any operation by name: from JSON, and to JSON.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include <tessera/spec/reflect.hpp>

#include "../command.hpp"
#include "../json.hpp"

namespace tessera::tool {

template <class Value>
inline constexpr bool is_optional = false;
template <class Value>
inline constexpr bool is_optional<std::optional<Value>> = true;

/// Reads `value` into an option's type; false if it is of another kind.
template <class Value>
bool read_into(Value& option, const boost::json::value& value) {
  if constexpr (is_optional<Value>) {
    if (value.is_null()) {
      option.reset();
      return true;
    }
    typename Value::value_type inner{};
    if (!read_into(inner, value)) return false;
    option = inner;
    return true;
  } else if constexpr (std::is_same_v<Value, bool>) {
    if (value.is_bool()) option = value.get_bool();
    return value.is_bool();
  } else if constexpr (std::is_enum_v<Value>) {
    if (!value.is_string()) return false;
    const auto named = enumerator_named<Value>(std::string_view(value.get_string()));
    if (named) option = *named;
    return named.has_value();
  } else {
    if (!value.is_number()) return false;
    boost::system::error_code inexact;
    const auto number = value.to_number<Value>(inexact);
    if (!inexact) option = number;
    return !inexact;
  }
}

/// What an option's value looks like, for messages.
template <class Value>
std::string kind_of(const Value&) {
  if constexpr (is_optional<Value>) {
    return "null or " + kind_of(typename Value::value_type{});
  } else if constexpr (std::is_same_v<Value, bool>) {
    return "true or false";
  } else if constexpr (std::is_enum_v<Value>) {
    return "one of " + enumerator_list<Value>();
  } else if constexpr (std::is_floating_point_v<Value>) {
    return "a number";
  } else {
    return std::is_signed_v<Value> ? "a whole number of 64 bits"
                                   : "a whole number from 0 to 18446744073709551615";
  }
}

template <class Value>
boost::json::value option_json(const Value& option) {
  if constexpr (is_optional<Value>) {
    return option ? option_json(*option) : boost::json::value(nullptr);
  } else if constexpr (std::is_enum_v<Value>) {
    return boost::json::value(boost::json::string_view(enumerator_name(option)));
  } else {
    return boost::json::value(option);
  }
}

/// Sets one option by its name. Fails with `subject`, the name and the value if the name is unknown
/// or the value is of another kind.
template <class Options>
void set_option_in(Options& options, std::string_view name, const boost::json::value& value,
                   const std::string& subject) {
  bool known = false;
  std::string names;
  for_each_member(options, [&](std::string_view member, auto& option) {
    names += names.empty() ? "" : ", ";
    names += member;
    if (member != name) return;
    known = true;
    if (!read_into(option, value)) {
      throw failure(fmt::format("{}: option {} is {}, must be {}", subject, name, json_line(value),
                                kind_of(option)));
    }
  });
  if (!known) {
    throw failure(fmt::format("{}: \"{}\" is not an option, known are {}", subject, name, names));
  }
}

/// The options that differ from their defaults.
template <class Options>
boost::json::value options_json(const Options& options) {
  boost::json::object object;
  for_each_member(options, [&](std::string_view name, const auto& option) {
    object[boost::json::string_view(name)] = option_json(option);
  });
  const Options defaults{};
  for_each_member(defaults, [&](std::string_view name, const auto& option) {
    const boost::json::string_view key(name);
    if (object[key] == option_json(option)) object.erase(key);
  });
  return object;
}

}  // namespace tessera::tool
