// What every family's part of the generator shares: from configs to rows, and from the name of a
// row back to the row. A family gives a struct of types and static functions:
//
// | member | what |
// |---|---|
// | config_type, axes_type, runtime_family | its config; a block of its axes; its runtime struct |
// | blocks() | the default table |
// | for_each_combination(axes, visit) | every config of a block |
// | product_text(axes) | "2 targets x 3 types" |
// | spelled_by(name) | the config whose fields a name spells, if it spells one |
// | unit_of(config) | rows with the same text share a translation unit |
// | instantiations(config, type) | lines of the row's unit: its entry points |
// | text_of(value) | a member of the config as C++; for numbers and enumerators see `member_text` |
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tessera/spec/reflect.hpp>
#include <tessera/spec/status.hpp>

#include "cheapest_row.hpp"
#include "problem.hpp"
#include "table.hpp"

namespace tessera::generate {

/// "backend::cpu_avx2", "48": a number, or an enumerator with the name of its type.
inline std::string member_text(int value) {
  return std::to_string(value);
}
template <described_enum Enum>
std::string member_text(std::string_view type, Enum value) {
  return fmt::format("{}::{}", type, enumerator_name(value));
}
inline std::string member_text(backend value) {
  return member_text("backend", value);
}
inline std::string member_text(dtype value) {
  return member_text("dtype", value);
}

/// The parts of a name.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

inline std::optional<int> number_in(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Builds "2 targets x 3 types": the axes of more than one value.
class product {
 public:
  product& factor(std::size_t size, std::string_view what) {
    if (size != 1) text_ += fmt::format("{}{} {}", text_.empty() ? "" : " x ", size, what);
    return *this;
  }
  std::string text() const { return text_.empty() ? "1 combination" : text_; }

 private:
  std::string text_;
};

template <class Described>
row row_of(const typename Described::config_type& given) {
  const auto config = resolved(given);
  row made;
  made.name = name_of(config).view();
  made.type_name = made.name;
  std::replace_if(
      made.type_name.begin(), made.type_name.end(), [](char c) { return c == '.' || c == '+'; },
      '_');
  made.target = config.target;
  made.unit = Described::unit_of(config);
  for_each_member(config, [&](std::string_view, const auto& value) {
    if (!made.config.empty()) made.config += ", ";
    made.config += Described::text_of(value);
  });
  made.instantiations = Described::instantiations(config, made.type_name);
  return made;
}

/// Walks the axes, drops what breaks a rule, refuses a row that comes from two blocks.
template <class Described>
outcome<table> default_table_of() {
  using config_type = typename Described::config_type;
  table made;
  std::map<std::string, std::string> origin;
  std::optional<refusal> twice;
  for (const auto& axes : Described::blocks()) {
    block_report report;
    report.about = axes.about;
    report.product = Described::product_text(axes);
    Described::for_each_combination(axes, [&](const config_type& config) {
      ++report.combinations;
      const auto broken = broken_table_rule(config);
      if (broken != decltype(broken)::none) {
        ++report.dropped[std::string(enumerator_name(broken))];
        return;
      }
      row one = row_of<Described>(config);
      if (const auto [at, fresh] = origin.emplace(one.name, axes.about); !fresh && !twice) {
        twice = refusal{fmt::format("row {} comes from two blocks of the axes: '{}' and '{}'",
                                    one.name, at->second, axes.about)};
      }
      made.rows.push_back(std::move(one));
      ++report.rows;
    });
    made.blocks.push_back(std::move(report));
  }
  if (twice) return *twice;
  std::ranges::sort(made.rows, {}, &row::name);
  return made;
}

/// The row of that name, legal and spelled as `name_of` spells it.
template <class Described>
outcome<row> row_named_in(std::string_view name) {
  const auto config = Described::spelled_by(name);
  if (!config) return refusal{"is not the name of a row"};
  if (const auto broken = broken_table_rule(*config); broken != decltype(broken)::none) {
    return refusal{fmt::format("is not a legal row; rule {}: {}", enumerator_name(broken),
                               sentence_of(broken))};
  }
  if (const auto own = name_of(*config); own.view() != name) {
    return refusal{fmt::format("is not spelled as the row's own name, {}", own.view())};
  }
  return row_of<Described>(*config);
}

/// The rows of the default table beside their configs.
template <class Described>
std::vector<known_row<typename Described::config_type>> known_rows_of() {
  using config_type = typename Described::config_type;
  std::vector<known_row<config_type>> known;
  for (const auto& axes : Described::blocks()) {
    Described::for_each_combination(axes, [&](const config_type& config) {
      const auto broken = broken_table_rule(config);
      if (broken != decltype(broken)::none) return;
      known.push_back({row_of<Described>(config), resolved(config)});
    });
  }
  return known;
}

/// See `family::row_for`.
template <class Described>
outcome<std::optional<row>> row_for_problem(std::string_view line, backend target) {
  using runtime_family = typename Described::runtime_family;
  const outcome<demand> asked = demand_of_problem(runtime_family::operations, line);
  if (const auto* why = std::get_if<refusal>(&asked)) return *why;
  return cheapest_row<runtime_family>(
      std::get<demand>(asked).template as<typename runtime_family::demand_type>(), target,
      known_rows_of<Described>(), &row_named_in<Described>);
}

/// See `family::identity_of`.
template <class Described>
std::string identity_of_problem(std::string_view line) {
  using runtime_family = typename Described::runtime_family;
  const outcome<demand> asked = demand_of_problem(runtime_family::operations, line);
  if (!std::holds_alternative<demand>(asked)) return {};
  return identity_of(runtime_family::fields, std::get<demand>(asked));
}

/// The members of `family` that follow from the description; what remains is text.
template <class Described>
family described_family() {
  family made;
  made.name = Described::runtime_family::name;
  const typename Described::config_type any;
  for_each_member(any, [&](std::string_view name, const auto&) {
    if (!made.config_members.empty()) made.config_members += ", ";
    made.config_members += name;
  });
  made.number = Described::runtime_family::number;
  made.operations = Described::runtime_family::operations;
  made.default_table = &default_table_of<Described>;
  made.row_named = &row_named_in<Described>;
  made.row_for = &row_for_problem<Described>;
  made.identity_of = &identity_of_problem<Described>;
  return made;
}

}  // namespace tessera::generate
