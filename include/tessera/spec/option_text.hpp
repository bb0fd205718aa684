// Options of any operation by name: their text, and back. Used by problem text, the command line
// and files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <tessera/spec/check.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/words.hpp>

namespace tessera::text {

/// The value of an option that is set: "true", "0.5", "top_left".
inline std::string option_text(const option_form& option, const void* options) {
  const checks::option_value value = checks::value_of(option, options);
  std::string out;
  if (option.type == option_type::flag) return value.integer != 0 ? "true" : "false";
  if (option.type == option_type::choice) {
    const auto number = static_cast<std::size_t>(value.integer);
    return std::string(number < option.enumerators.size() ? option.enumerators[number] : "invalid");
  }
  if (option.type == option_type::natural) {
    append_number(out, static_cast<std::uint64_t>(value.integer));
  } else if (value.is_number) {
    append_number(out, value.number);
  } else {
    append_number(out, value.integer);
  }
  return out;
}

/// True if the option has its default.
inline bool is_default(const option_form& option, const signature& form, const void* options) {
  return checks::value_of(option, options) == checks::value_of(option, form.default_options);
}

/// "one of bottom_right, top_left": what a value of the option looks like, for messages.
inline std::string form_of(const option_form& option) {
  switch (option.type) {
    case option_type::flag:
      return "true or false";
    case option_type::integer:
    case option_type::optional_integer:
      return "a 64-bit integer";
    case option_type::natural:
      return "an unsigned 64-bit integer";
    case option_type::number:
    case option_type::optional_number:
      return "a number";
    case option_type::choice: {
      std::string list = "one of ";
      for (const std::string_view& name : option.enumerators) {
        if (&name != option.enumerators.data()) list += ", ";
        list += name;
      }
      return list;
    }
  }
  return {};
}

template <class Value>
Value& option_at(const option_form& option, void* options) noexcept {
  return *reinterpret_cast<Value*>(static_cast<std::byte*>(options) + option.offset);
}

/// Sets an option from text; false if it is not of the option's form.
inline bool read_option(const option_form& option, std::string_view word, void* options) {
  switch (option.type) {
    case option_type::flag:
      option_at<bool>(option, options) = word == "true";
      return word == "true" || word == "false";
    case option_type::integer:
      return read_number(word, option_at<std::int64_t>(option, options));
    case option_type::natural:
      return read_number(word, option_at<std::uint64_t>(option, options));
    case option_type::number:
      return read_number(word, option_at<double>(option, options));
    case option_type::optional_integer:
      return read_number(word, option_at<std::optional<std::int64_t>>(option, options).emplace());
    case option_type::optional_number:
      return read_number(word, option_at<std::optional<double>>(option, options).emplace());
    case option_type::choice:
      for (std::size_t i = 0; i < option.enumerators.size(); ++i) {
        if (option.enumerators[i] != word) continue;
        option_at<std::uint8_t>(option, options) = static_cast<std::uint8_t>(i);
        return true;
      }
      return false;
  }
  return false;
}

}  // namespace tessera::text
