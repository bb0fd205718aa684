#include "fields.hpp"

#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "../failure.hpp"
#include "../json.hpp"

namespace tessera::tool::report {

namespace json = boost::json;

std::optional<double> number_in(std::string_view value) {
  double number = 0;
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || stop != end || !std::isfinite(number)) return std::nullopt;
  return number;
}

void fields::refuse(std::string_view name, std::string_view fact) const {
  throw failure(fmt::format("{}: {} {}", subject_, name, fact));
}

const json::value* fields::find(std::string_view name) const {
  const json::value* found = object_->if_contains(json::string_view(name.data(), name.size()));
  return found == nullptr || found->is_null() ? nullptr : found;
}

std::string fields::text(std::string_view name) const {
  const json::value* found = find(name);
  if (found == nullptr) return {};
  if (!found->is_string()) {
    refuse(name, fmt::format("is {}, must be a string", json_line(*found)));
  }
  return std::string(std::string_view(found->get_string()));
}

std::string fields::required_text(std::string_view name) const {
  std::string found = text(name);
  if (found.empty()) refuse(name, "is missing or empty, must be a string");
  return found;
}

std::optional<double> fields::number(std::string_view name, double least) const {
  const json::value* found = find(name);
  if (found == nullptr) return std::nullopt;
  std::optional<double> number;
  if (found->is_number()) number = found->to_number<double>();
  if (found->is_string()) number = number_in(std::string_view(found->get_string()));
  if (!number || !std::isfinite(*number)) {
    refuse(name, fmt::format("is {}, must be a number", json_line(*found)));
  }
  if (*number < least) {
    refuse(name, fmt::format("is {}, must be at least {}", json_line(*found), least));
  }
  return number;
}

std::optional<double> fields::time(std::string_view name) const {
  const std::optional<double> found = number(name);
  if (found && !(*found > 0)) refuse(name, "is 0, a time must be above 0");
  return found;
}

double fields::required_time(std::string_view name) const {
  const std::optional<double> found = time(name);
  if (!found) refuse(name, "is missing, must be a number above 0");
  return *found;
}

const json::array* fields::array(std::string_view name) const {
  const json::value* found = find(name);
  if (found == nullptr) return nullptr;
  if (!found->is_array()) {
    refuse(name, fmt::format("is {}, must be an array", json_line(*found).substr(0, 60)));
  }
  return &found->get_array();
}

const json::array& fields::required_array(std::string_view name) const {
  const json::array* found = array(name);
  if (found == nullptr) refuse(name, "is missing, must be an array");
  return *found;
}

fields fields::element(const json::array& values, std::size_t index, std::string_view name) const {
  const json::value& value = values[index];
  if (!value.is_object()) {
    refuse(fmt::format("{}[{}]", name, index),
           fmt::format("is {}, must be an object", json_line(value).substr(0, 60)));
  }
  return {value.get_object(), fmt::format("{}: {}[{}]", subject_, name, index)};
}

}  // namespace tessera::tool::report
