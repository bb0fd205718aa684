// Fields of a JSON object by name, with refusals that name file, field and value.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

namespace tessera::tool::report {

/// A view of an object and the words that a refusal begins with ("a.json: case \"x\"").
class fields {
 public:
  fields(const boost::json::object& object, std::string subject)
      : object_(&object), subject_(std::move(subject)) {}

  const std::string& subject() const noexcept { return subject_; }
  const boost::json::object& object() const noexcept { return *object_; }

  /// Empty if absent or null; refuses anything that is not text.
  std::string text(std::string_view name) const;

  /// Refuses absent, null and empty too.
  std::string required_text(std::string_view name) const;

  /// A finite number, also one written as text; empty if absent or null. Refuses numbers below
  /// `least`.
  std::optional<double> number(std::string_view name, double least = 0) const;

  /// Refuses absent and null, and zero: a time.
  double required_time(std::string_view name) const;
  std::optional<double> time(std::string_view name) const;

  /// Null if absent; refuses what is no array.
  const boost::json::array* array(std::string_view name) const;
  const boost::json::array& required_array(std::string_view name) const;

  /// The object at `index` of the array `name`; refuses anything else there.
  fields element(const boost::json::array& values, std::size_t index, std::string_view name) const;

  [[noreturn]] void refuse(std::string_view name, std::string_view fact) const;

 private:
  const boost::json::value* find(std::string_view name) const;

  const boost::json::object* object_;
  std::string subject_;
};

/// `value` as a finite number, whole text consumed; empty if it is none.
std::optional<double> number_in(std::string_view value);

}  // namespace tessera::tool::report
