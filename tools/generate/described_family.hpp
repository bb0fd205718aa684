// What every family's part of the generator shares: from configs to rows, and from the name of a
// row back to the row. A family gives a struct of types and static members:
//
// | member | what |
// |---|---|
// | config_type, runtime_family | its config; its runtime struct |
// | problems | a tuple of its problems' types |
// | api_headers | optional: what declares its functions, where that is not one header of its name |
// | blocks() | the default table: `about` and, described, a list for each member of the config |
// | axes | optional: a tuple of `axis`, outermost first, where lists have other values |
// | cpu_budget, cuda_budget | what its rows may cost |
// | unit_of(config) | rows with the same text share a translation unit |
// | text_of(value) | optional: members of the config as C++ that are no numbers or enumerators |
// | entry_functions | optional, true: its rooms have functions instead of launchers |
// | more_entry_points(config) | optional: further functions of these; row.hpp by hand |
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/describe/members.hpp>
#include <boost/describe/modifiers.hpp>
#include <boost/type_index.hpp>
#include <fmt/format.h>

#include <tessera/spec/reflect.hpp>
#include <tessera/spec/row_name.hpp>
#include <tessera/spec/row_rule.hpp>
#include <tessera/spec/status.hpp>

#include "cheapest_row.hpp"
#include "problem.hpp"
#include "table.hpp"

namespace tessera::generate {

/// "backend::cpu_avx2", "48": an enumerator with the name of its type, or a number.
template <class Described, class Member>
std::string member_text(const Member& value) {
  if constexpr (requires { Described::text_of(value); }) {
    return Described::text_of(value);
  } else if constexpr (std::is_enum_v<Member>) {
    std::string type = boost::typeindex::type_id<Member>().pretty_name();
    return fmt::format("{}::{}", type.substr(type.rfind(':') + 1), enumerator_name(value));
  } else {
    return fmt::format("{}", value);
  }
}

/// One list of a block: what its values are, the list, and the member of the config that takes a
/// value, or a function that puts one there.
template <class Values, class Put>
struct axis {
  std::string_view name;
  Values values;
  Put put;
};
template <class Values, class Put>
axis(std::string_view, Values, Put) -> axis<Values, Put>;

/// Whether a list is called what its values are: as the member of the config, or its plural.
constexpr bool is_list_of(std::string_view list, std::string_view member) {
  if (!list.starts_with(member)) return false;
  const std::string_view plural = list.substr(member.size());
  return plural.empty() || plural == "s" || plural == "es";
}

/// The axes of a block, with its lists: a tuple of `axis`, outermost first.
template <class Described, class Block>
auto axes_of(const Block& block) {
  if constexpr (requires { Described::axes; }) {
    return std::apply(
        [&](const auto&... along) {
          return std::tuple{axis{along.name, &(block.*along.values), along.put}...};
        },
        Described::axes);
  } else {
    using config = typename Described::config_type;
    return [&]<template <class...> class All, class... List, class... Member>(All<List...>,
                                                                              All<Member...>) {
      static_assert(sizeof...(List) == sizeof...(Member),
                    "a block describes a list for each member of the config");
      static_assert((is_list_of(List::name, Member::name) && ...),
                    "the lists of a block stand in the order of the config's members and have "
                    "their names, or the plurals of these");
      return std::tuple{
          axis{std::string_view(Member::name), &(block.*List::pointer), Member::pointer}...};
    }(boost::describe::describe_members<Block, boost::describe::mod_public>{},
           boost::describe::describe_members<config, boost::describe::mod_public>{});
  }
}

/// Calls visit(config) for each combination of the lists from axis `At` on.
template <std::size_t At = 0, class Axes, class Config, class Visitor>
void for_each_combination(const Axes& axes, Config config, const Visitor& visit) {
  if constexpr (At == std::tuple_size_v<Axes>) {
    visit(config);
  } else {
    const auto& along = std::get<At>(axes);
    for (const auto& value : *along.values) {
      if constexpr (std::is_member_pointer_v<decltype(along.put)>) {
        config.*along.put = value;
      } else {
        along.put(config, value);
      }
      for_each_combination<At + 1>(axes, config, visit);
    }
  }
}

/// The head dims of a unit of GPU rows, by one of them, 0 for a row of any: a third of the time of
/// a unit of few rows is for headers, and all of them in one take more than a minute.
inline std::string_view head_dims_of_unit(int head_dim) {
  if (head_dim == 0) return "dany";
  return head_dim <= 96 ? "to_d96" : "to_d256";
}

/// "2 target x 3 type": the lists of more than one value.
template <class Axes>
std::string product_text(const Axes& axes) {
  std::string text;
  const auto append = [&](const auto& along) {
    const std::size_t size = along.values->size();
    if (size == 1) return;
    text += fmt::format("{}{} {}", text.empty() ? "" : " x ", size, along.name);
  };
  std::apply([&](const auto&... along) { (append(along), ...); }, axes);
  return text.empty() ? "1 combination" : text;
}

/// Whether rows have entry points that the rooms of the family write as functions, for launches
/// with more to say than a launcher (spec/instance.hpp).
template <class Described>
constexpr bool has_entry_functions() {
  if constexpr (requires { Described::entry_functions; }) return Described::entry_functions;
  return false;
}

/// Lines of the unit of a row: its entry points in the family's kernel room.
template <class Described>
std::vector<std::string> instantiations_of(const typename Described::config_type& config,
                                           const std::string& type) {
  const std::string_view family = Described::runtime_family::name;
  const std::string_view room = config.target == backend::cuda_sm90 ? "sm90"
                                : is_cuda(config.target)            ? "sm80"
                                                                    : "cpu";
  if (!has_entry_functions<Described>()) {
    return {fmt::format(
        "template struct kernels::{}_entry_points<kernels::{}::{}::launcher<rows::{}>>;",
        is_cuda(config.target) ? "cuda" : "cpu", family, room, type)};
  }
  std::vector<std::string> lines;
  const auto add = [&](std::string_view returned, std::string_view function,
                       std::string_view parameters) {
    lines.push_back(fmt::format("template {} kernels::{}::{}::{}<rows::{}>({});", returned, family,
                                room, function, type, parameters));
  };
  const std::string args = fmt::format("const {}_kernel_args&", family);
  add("std::size_t", "workspace_bytes", args + ", int");
  add("status", "launch", args + ", const launch_context&");
  if (is_cuda(config.target)) add("status", "prepare", "");
  if constexpr (requires { Described::more_entry_points(config); }) {
    for (const auto& [function, parameters] : Described::more_entry_points(config)) {
      add("status", function, parameters);
    }
  }
  return lines;
}

template <class Described>
row row_of(const typename Described::config_type& given) {
  const auto config = resolved(given);
  row row;
  row.name = name_of(config).view();
  row.type_name = row.name;
  std::replace_if(
      row.type_name.begin(), row.type_name.end(), [](char c) { return c == '.' || c == '+'; }, '_');
  row.target = config.target;
  row.unit = Described::unit_of(config);
  for_each_member(config, [&](std::string_view, const auto& value) {
    if (!row.config.empty()) row.config += ", ";
    row.config += member_text<Described>(value);
  });
  row.instantiations = instantiations_of<Described>(config, row.type_name);
  return row;
}

/// Walks the axes, drops what breaks a rule, refuses a row that comes from two blocks.
template <class Described>
outcome<table> default_table_of() {
  using config_type = typename Described::config_type;
  table table;
  std::map<std::string, std::string> origin;
  std::optional<refusal> twice;
  for (const auto& block : Described::blocks()) {
    const auto axes = axes_of<Described>(block);
    block_report report;
    report.about = block.about;
    report.product = product_text(axes);
    for_each_combination(axes, config_type{}, [&](const config_type& config) {
      ++report.combinations;
      if (const row_rule* const broken = broken_table_rule(config)) {
        ++report.dropped[broken->sentence];
        return;
      }
      row row = row_of<Described>(config);
      if (const auto [at, fresh] = origin.emplace(row.name, block.about); !fresh && !twice) {
        twice = refusal{fmt::format("row {} comes from two blocks of the axes: '{}' and '{}'",
                                    row.name, at->second, block.about)};
      }
      table.rows.push_back(std::move(row));
      ++report.rows;
    });
    table.blocks.push_back(std::move(report));
  }
  if (twice) return *twice;
  std::ranges::sort(table.rows, {}, &row::name);
  return table;
}

/// The row of that name, legal and spelled as `name_of` spells it.
template <class Described>
outcome<row> row_named_in(std::string_view name) {
  const auto config = spelling_of<typename Described::config_type>.config_of(name);
  if (!config) return refusal{"is not the name of a row"};
  if (const row_rule* const broken = broken_table_rule(*config)) {
    return refusal{fmt::format("is not a legal row: {}", broken->sentence)};
  }
  if (const auto own = name_of(*config); own.view() != name) {
    return refusal{fmt::format("is not spelled as the row's own name, {}", own.view())};
  }
  return row_of<Described>(*config);
}

/// See `family::candidates_beside`.
template <class Described>
std::vector<row> candidates_in(std::string_view name) {
  std::vector<row> rows;
  if constexpr (requires { Described::candidates(typename Described::config_type{}); }) {
    const auto config = spelling_of<typename Described::config_type>.config_of(name);
    if (!config) return rows;
    for (const auto& other : Described::candidates(*config)) {
      if (is_legal_in_table(other)) rows.push_back(row_of<Described>(other));
    }
  }
  return rows;
}

/// The rows of the default table beside their configs.
template <class Described>
std::vector<known_row<typename Described::config_type>> known_rows_of() {
  using config_type = typename Described::config_type;
  std::vector<known_row<config_type>> known;
  for (const auto& block : Described::blocks()) {
    for_each_combination(axes_of<Described>(block), config_type{}, [&](const config_type& config) {
      if (!is_legal_in_table(config)) return;
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

/// A type as it is called inside of namespace tessera.
template <class Type>
std::string name_of_type() {
  const std::string whole = boost::typeindex::type_id<Type>().pretty_name();
  return whole.substr(whole.rfind(':') + 1);
}

template <class... Problems>
std::vector<operation_types> types_of(const std::tuple<Problems...>*) {
  std::vector<operation_types> all;
  const auto add = [&]<class Problem>(const Problem*) {
    operation_types& types = all.emplace_back();
    types.op = name_of_type<typename Problem::op_type>();
    types.args = name_of_type<typename Problem::args_type>();
    types.options = name_of_type<typename Problem::options_type>();
    for (const operation& operation : operation_table<typename Problem::op_type>::operations) {
      types.operations.emplace_back(operation.name);
    }
  };
  (add(static_cast<const Problems*>(nullptr)), ...);
  return all;
}

/// What units of a room of kernels include.
inline std::string launch_header(std::string_view family, std::string_view room) {
  return fmt::format("tessera/kernels/{}/{}/launch.hpp", family, room);
}

/// The family of a description.
template <class Described>
family described_family() {
  family family;
  family.name = Described::runtime_family::name;
  family.row_macro = fmt::format("TESSERA_{}_ROW", family.name);
  std::ranges::transform(family.row_macro, family.row_macro.begin(),
                         [](unsigned char letter) { return std::toupper(letter); });
  family.config_type = fmt::format("{}_config", family.name);
  family.fits_header = fmt::format("tessera/families/{}/fits.hpp", family.name);
  const typename Described::config_type any;
  for_each_member(any, [&](std::string_view name, const auto&) {
    if (!family.config_members.empty()) family.config_members += ", ";
    family.config_members += name;
  });
  family.api_headers = {family.name};
  if constexpr (requires { Described::api_headers; }) {
    family.api_headers.assign(Described::api_headers.begin(), Described::api_headers.end());
  }
  family.runtime_struct = name_of_type<typename Described::runtime_family>();
  family.problems = types_of(static_cast<const typename Described::problems*>(nullptr));
  family.has_entry_functions = has_entry_functions<Described>();
  family.has_own_row_header = requires(typename Described::config_type config) {
    Described::more_entry_points(config);
  };
  family.number = Described::runtime_family::number;
  family.operations = Described::runtime_family::operations;
  family.default_table = &default_table_of<Described>;
  family.row_named = &row_named_in<Described>;
  family.candidates_beside = &candidates_in<Described>;
  family.row_for = &row_for_problem<Described>;
  family.identity_of = &identity_of_problem<Described>;
  family.of(device_part::cpu) = {.kernel_header = launch_header(family.name, "cpu"),
                                 .limits = Described::cpu_budget};
  family.of(device_part::cuda) = {.kernel_header = launch_header(family.name, "sm80"),
                                  .limits = Described::cuda_budget};
  const auto has_sm90_rows = [](const auto& block) {
    return std::ranges::find(block.targets, backend::cuda_sm90) != block.targets.end();
  };
  if (std::ranges::any_of(Described::blocks(), has_sm90_rows)) {
    family.of(device_part::cuda).own_headers = {
        {backend::cuda_sm90, launch_header(family.name, "sm90")}};
  }
  return family;
}

}  // namespace tessera::generate
