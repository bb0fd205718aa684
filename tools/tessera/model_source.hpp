// The JSON of a model description: keys, and refusals that name file, key, fact and both numbers.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "failure.hpp"
#include "json.hpp"

namespace tessera::tool {

inline constexpr std::int64_t max_layers = 4096;
inline constexpr std::int64_t max_width = std::int64_t{1} << 24;

/// The object that describes the text model, with messages that name file and key.
class model_source {
 public:
  model_source(std::string file, const boost::json::object& whole)
      : file_(std::move(file)), whole_(whole), text_(&whole) {
    const boost::json::value* nested = whole.if_contains("text_config");
    if (nested != nullptr && nested->is_object() && !whole.contains("num_attention_heads")) {
      text_ = &nested->get_object();
    }
  }

  [[noreturn]] void refuse(std::string_view key, std::string_view fact) const {
    throw failure(fmt::format("{}: {} {}", file_, key, fact));
  }

  /// Null if absent or null. The outer object serves what the text model's lacks.
  const boost::json::value* find(std::string_view key) const {
    for (const boost::json::object* object : {text_, &whole_}) {
      const boost::json::value* value = object->if_contains(key);
      if (value != nullptr && !value->is_null()) return value;
    }
    return nullptr;
  }

  std::optional<std::int64_t> whole_number(std::string_view key, std::int64_t most) const {
    const boost::json::value* value = find(key);
    if (value == nullptr) return std::nullopt;
    boost::system::error_code inexact;
    const auto number = value->is_number() ? value->to_number<std::int64_t>(inexact) : 0;
    if (!value->is_number() || inexact || number < 1 || number > most) {
      refuse(key,
             fmt::format("is {}, must be a whole number from 1 to {}", json_line(*value), most));
    }
    return number;
  }

  std::int64_t needed(std::string_view key, std::int64_t most) const {
    const auto number = whole_number(key, most);
    if (!number) refuse(key, fmt::format("is missing, must be a whole number from 1 to {}", most));
    return *number;
  }

  std::optional<double> positive(std::string_view key) const {
    const boost::json::value* value = find(key);
    if (value == nullptr) return std::nullopt;
    const double number = value->is_number() ? value->to_number<double>() : 0.0;
    if (!(number > 0.0) || !std::isfinite(number)) {
      refuse(key, fmt::format("is {}, must be a number above 0", json_line(*value)));
    }
    return number;
  }

  std::optional<bool> flag(std::string_view key) const {
    const boost::json::value* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_bool())
      refuse(key, fmt::format("is {}, must be true or false", json_line(*value)));
    return value->get_bool();
  }

  std::string text(std::string_view key) const {
    const boost::json::value* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_string()) refuse(key, fmt::format("is {}, must be a text", json_line(*value)));
    return std::string(value->get_string());
  }

  bool has(std::string_view key) const { return find(key) != nullptr; }

  /// An object within, as a source of its own; none if it is absent.
  std::optional<model_source> nested(std::string_view key) const {
    const boost::json::value* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_object())
      refuse(key, fmt::format("is {}, must be an object", json_line(*value)));
    return model_source(fmt::format("{}: {}:", file_, key), value->get_object());
  }

  /// True if the list has the number.
  bool lists(std::string_view key, std::int64_t number) const {
    const boost::json::value* value = find(key);
    if (value == nullptr || !value->is_array()) refuse(key, "is missing, must be a list");
    for (const boost::json::value& entry : value->get_array()) {
      if (entry == number) return true;
    }
    return false;
  }

 private:
  std::string file_;
  const boost::json::object& whole_;
  const boost::json::object* text_;
};

}  // namespace tessera::tool
