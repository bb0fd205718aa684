#include "option_json.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include <tessera/spec/option_text.hpp>

#include "../failure.hpp"
#include "../json.hpp"

namespace tessera::tool {
namespace {

namespace json = boost::json;

template <class Number>
std::optional<Number> number_in(const json::value& value) {
  if (!value.is_number()) return std::nullopt;
  boost::system::error_code inexact;
  const auto number = value.to_number<Number>(inexact);
  return inexact ? std::nullopt : std::optional<Number>(number);
}

template <class Member>
bool store(const option_form& option, const std::optional<Member>& value, void* options) {
  if (value) text::option_at<Member>(option, options) = *value;
  return value.has_value();
}

template <class Number>
bool store_optional(const option_form& option, const json::value& value, void* options) {
  auto& member = text::option_at<std::optional<Number>>(option, options);
  if (value.is_null()) {
    member.reset();
    return true;
  }
  const auto number = number_in<Number>(value);
  if (number) member = *number;
  return number.has_value();
}

/// Reads `value` into an option; false if it is of another kind.
bool read_into(const option_form& option, const json::value& value, void* options) {
  switch (option.type) {
    case option_type::flag:
      if (value.is_bool()) text::option_at<bool>(option, options) = value.get_bool();
      return value.is_bool();
    case option_type::choice:
      return value.is_string() && text::read_option(option, value.get_string(), options);
    case option_type::integer:
      return store(option, number_in<std::int64_t>(value), options);
    case option_type::natural:
      return store(option, number_in<std::uint64_t>(value), options);
    case option_type::number:
      return store(option, number_in<double>(value), options);
    case option_type::optional_integer:
      return store_optional<std::int64_t>(option, value, options);
    case option_type::optional_number:
      return store_optional<double>(option, value, options);
  }
  return false;
}

/// What an option's value looks like, for messages.
std::string kind_of(const option_form& option) {
  switch (option.type) {
    case option_type::integer:
      return "a whole number of 64 bits";
    case option_type::natural:
      return "a whole number from 0 to 18446744073709551615";
    case option_type::optional_integer:
      return "null or a whole number of 64 bits";
    case option_type::optional_number:
      return "null or a number";
    default:
      return text::form_of(option);
  }
}

json::value option_json(const option_form& option, const void* options) {
  const checks::option_value value = checks::value_of(option, options);
  if (!value.set) return nullptr;
  if (option.type == option_type::flag) return value.integer != 0;
  if (option.type == option_type::choice) return json::value(text::option_text(option, options));
  if (option.type == option_type::natural) return static_cast<std::uint64_t>(value.integer);
  if (value.is_number) return value.number;
  return value.integer;
}

}  // namespace

void set_option_in(const signature& form, void* options, std::string_view name,
                   const json::value& value, const std::string& subject) {
  if (std::ranges::find(form.remarks, name) != form.remarks.end()) return;
  std::string names;
  for (const option_form& option : form.options) {
    names += names.empty() ? "" : ", ";
    names += option.name;
    if (option.name != name) continue;
    if (read_into(option, value, options)) return;
    throw failure(fmt::format("{}: option {} is {}, must be {}", subject, name, json_line(value),
                              kind_of(option)));
  }
  throw failure(fmt::format("{}: \"{}\" is not an option, known are {}", subject, name, names));
}

dtype type_in(const tensor_form& tensor, std::string_view option, const json::value& value,
              const std::string& subject) {
  std::string names;
  for (std::size_t i = 0; i < dtype_names.size(); ++i) {
    const auto type = static_cast<dtype>(i);
    if (!tensor.types.has(type)) continue;
    if (value.is_string() && value.get_string() == name_of(type)) return type;
    names += names.empty() ? "" : ", ";
    names += name_of(type);
  }
  throw failure(fmt::format("{}: option {} is {}, must be one of {}", subject, option,
                            json_line(value), names));
}

json::value options_json(const signature& form, const void* options) {
  json::object object;
  for (const option_form& option : form.options) {
    if (text::is_default(option, form, options)) continue;
    object[json::string_view(option.name)] = option_json(option, options);
  }
  return object;
}

}  // namespace tessera::tool
