// Whether a row can run what is asked, what is in the way if not, and how far off it is: from one
// list of conditions a family (families/<family>/fits.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <tessera/spec/names.hpp>
#include <tessera/spec/sentence.hpp>

namespace tessera {

/// A condition between the config of a row and a demand. What is in the way where it does not hold
/// is "NAME is ASKED, the row has PRESENT", unless `obstacle` says it in other words.
template <class Config, class Demand>
struct fit_rule {
  std::string_view name{};
  int distance = 1;  ///< how much nearer a row is for which it holds
  bool (*holds)(const Config&, const Demand&) noexcept = nullptr;
  sentence_part (*asked)(const Demand&) noexcept = nullptr;
  sentence_part (*present)(const Config&) noexcept = nullptr;
  std::string (*obstacle)(const Config&, const Demand&) = nullptr;
};

namespace fits_impl {

/// What a sentence shows of a value: a number, or the name of an enumerator.
template <class Value>
constexpr sentence_part shown(Value value) noexcept {
  if constexpr (std::is_enum_v<Value>) {
    return name_of(value);
  } else {
    return value;
  }
}

}  // namespace fits_impl

/// The row was compiled for the value that is asked for: pointers to members of both, of a demand
/// to a member function too.
template <auto Row, auto Asked>
consteval auto same_value(std::string_view name, int distance = 1) {
  using row_type = decltype(class_of_member(Row));
  using asked_type = decltype(class_of_member(Asked));
  return fit_rule<row_type, asked_type>{
      .name = name,
      .distance = distance,
      .holds =
          [](const row_type& row, const asked_type& wanted) noexcept {
            return member_value(row, Row) == member_value(wanted, Asked);
          },
      .asked =
          [](const asked_type& wanted) noexcept {
            return fits_impl::shown(member_value(wanted, Asked));
          },
      .present =
          [](const row_type& row) noexcept { return fits_impl::shown(member_value(row, Row)); }};
}

/// Specialised by each family: `static constexpr std::array rules`, the first of which that does
/// not hold is the one that is told.
template <class Config>
struct fits_of;

namespace fits_impl {

/// A condition as a constant: what is called is known before anything is inlined.
template <class Config, std::size_t At>
inline constexpr auto condition = fits_of<Config>::rules[At].holds;

}  // namespace fits_impl

/// Rows of that config are asked for by such demands.
template <class Config, class Demand>
concept fits_demand = requires(const Config& row, const Demand& wanted) {
  fits_of<Config>::rules.front().holds(row, wanted);
};
/// Or by such problems.
template <class Config, class Problem>
concept fits_problem = requires(const Problem& problem) {
  requires fits_demand<Config, std::remove_cvref_t<decltype(demand_of(problem))>>;
};

/// The row runs what is asked; the device is not looked at.
template <class Config, class Demand>
requires fits_demand<Config, Demand>
constexpr bool runs(const Config& row, const Demand& wanted) noexcept {
  return [&]<std::size_t... At>(std::index_sequence<At...>) {
    return (fits_impl::condition<Config, At>(row, wanted) && ...);
  }
  (std::make_index_sequence<fits_of<Config>::rules.size()>{});
}
template <class Config, class Problem>
requires fits_problem<Config, Problem>
constexpr bool runs(const Config& row, const Problem& problem) noexcept {
  return runs(row, demand_of(problem));
}

/// The first thing that keeps a row from running what is asked: "head_dim is 96, the row has 128".
template <class Config, class Demand>
requires fits_demand<Config, Demand> std::string obstacle_of(const Config& row,
                                                             const Demand& wanted) {
  for (const auto& rule : fits_of<Config>::rules) {
    if (rule.holds(row, wanted)) continue;
    if (rule.obstacle != nullptr) return rule.obstacle(row, wanted);
    return sentence({rule.name, " is ", rule.asked(wanted), ", the row has ", rule.present(row)});
  }
  return "the row runs the problem";
}
template <class Config, class Problem>
requires fits_problem<Config, Problem> std::string obstacle_of(const Config& row,
                                                               const Problem& problem) {
  return obstacle_of(row, demand_of(problem));
}

/// How far a row is from running what is asked; 0: it does.
template <class Config, class Demand>
requires fits_demand<Config, Demand>
constexpr int distance_of(const Config& row, const Demand& wanted) noexcept {
  int distance = 0;
  for (const auto& rule : fits_of<Config>::rules) {
    distance += rule.holds(row, wanted) ? 0 : rule.distance;
  }
  return distance;
}

}  // namespace tessera
