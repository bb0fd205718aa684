// Validates the options of a call of any declared operation; see check.hpp.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <tessera/spec/declaration.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_checks.hpp>

namespace tessera::checks {

template <class Value>
const Value& member_at(const void* options, std::uint16_t offset) noexcept {
  return *reinterpret_cast<const Value*>(static_cast<const std::byte*>(options) + offset);
}

/// An option's value, whatever its type.
struct option_value {
  bool set = true;
  bool is_number = false;  ///< `number` counts, else `integer`
  double number = 0;
  std::int64_t integer = 0;
  friend bool operator==(const option_value&, const option_value&) = default;
};

inline option_value value_of(const option_form& option, const void* options) noexcept {
  const auto at = option.offset;
  switch (option.type) {
    case option_type::flag:
      return {.integer = member_at<bool>(options, at) ? 1 : 0};
    case option_type::choice:
      return {.integer = member_at<std::uint8_t>(options, at)};
    case option_type::integer:
      return {.integer = member_at<std::int64_t>(options, at)};
    case option_type::natural:
      return {.integer = static_cast<std::int64_t>(member_at<std::uint64_t>(options, at))};
    case option_type::number:
      return {.is_number = true, .number = member_at<double>(options, at)};
    case option_type::optional_integer: {
      const auto& value = member_at<std::optional<std::int64_t>>(options, at);
      return {.set = value.has_value(), .integer = value.value_or(0)};
    }
    case option_type::optional_number: {
      const auto& value = member_at<std::optional<double>>(options, at);
      return {.set = value.has_value(), .is_number = true, .number = value.value_or(0)};
    }
  }
  return {};
}

/// A double that is finite as a float.
inline bool is_finite_float(double value) noexcept {
  return std::abs(value) <= static_cast<double>(std::numeric_limits<float>::max());
}

inline bool meets(const option_form& option, const option_value& value) noexcept {
  if (option.type == option_type::choice) {
    return value.integer < static_cast<std::int64_t>(option.enumerators.size());
  }
  if (!value.set) return true;
  switch (option.limit) {
    case option_limit::none:
      return true;
    case option_limit::at_least:
      return value.integer >= option.least;
    case option_limit::finite_float:
      return is_finite_float(value.number);
    case option_limit::positive_float:
      return is_finite_float(value.number) && static_cast<float>(value.number) > 0.0f;
    case option_limit::probability:
      return value.number >= 0.0 && value.number < 1.0;
  }
  return false;
}

inline sentence_part part_of(const option_form& option, const option_value& value) noexcept {
  if (option.type == option_type::flag) return value.integer != 0 ? "true" : "false";
  if (value.is_number) return value.number;
  return value.integer;
}

[[gnu::cold, gnu::noinline]] inline bool refuse_option(const option_form& option,
                                                       const option_value& value, status& failure) {
  const std::string unset =
      option.unset.empty() ? std::string() : " (unset is " + std::string(option.unset.view()) + ")";
  const sentence_part is = part_of(option, value);
  if (option.type == option_type::choice) {
    return refuse(failure, option.name, ": is ", is, ", the last one is ",
                  static_cast<std::int64_t>(option.enumerators.size()) - 1, " (",
                  option.enumerators.back(), ")");
  }
  switch (option.limit) {
    case option_limit::finite_float:
      return refuse(failure, option.name, ": is ", is,
                    ", must be finite as a float (at most 3.4e38)");
    case option_limit::positive_float:
      return refuse(failure, option.name, ": is ", is, ", must be above 0 and finite as a float");
    case option_limit::probability:
      return refuse(failure, option.name, ": is ", is, ", must be at least 0 and below 1");
    default:
      return refuse(failure, option.name, ": is ", is, ", must be at least ", option.least,
                    std::string_view(unset));
  }
}

/// Each option in its range, and those that the operation does not have at their defaults.
inline bool are_options(const bound_call& call, status& failure) {
  const signature& form = call.form();
  for (const option_form& option : form.options) {
    if (option.limit == option_limit::none && option.type != option_type::choice) continue;
    const option_value value = value_of(option, call.options);
    if (!meets(option, value)) return refuse_option(option, value, failure);
    if (option.required && !value.set) {
      return refuse(failure, option.name, ": is not set, ", call.op->name,
                    " has no default for it");
    }
  }
  for (std::uint32_t rest = call.op->excluded; rest != 0; rest &= rest - 1) {
    const option_form& option = form.options[static_cast<std::size_t>(std::countr_zero(rest))];
    const option_value value = value_of(option, call.options);
    if (value == value_of(option, form.default_options)) continue;
    return refuse(failure, option.name, ": is ", part_of(option, value), ", ", call.op->name,
                  " has no such option");
  }
  return true;
}

}  // namespace tessera::checks
