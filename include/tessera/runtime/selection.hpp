// What the chain of choosers answers: which row, who decided, and why. Codes only; sentences are
// made when somebody asks (see explain.hpp).
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

/// Who may decide, in the order they are asked.
enum class selection_tier : std::uint8_t {
  none,        ///< nobody decided
  override,    ///< the call or TESSERA_ROW named the row
  overlay,     ///< a scoped rule named it
  memory,      ///< remembered; a remembered selection keeps the tier that first made it
  persistent,  ///< a measured line of a lookup table
  autotune,    ///< measured now, on request
  heuristic,   ///< the cost model
};

constexpr std::string_view name_of(selection_tier tier) noexcept {
  switch (tier) {
    case selection_tier::none:
      return "none";
    case selection_tier::override:
      return "override";
    case selection_tier::overlay:
      return "overlay";
    case selection_tier::memory:
      return "memory";
    case selection_tier::persistent:
      return "persistent";
    case selection_tier::autotune:
      return "autotune";
    case selection_tier::heuristic:
      return "heuristic";
  }
  return "invalid";
}

/// Why the row was chosen.
enum class selection_reason : std::uint8_t {
  none,
  named_by_call,         ///< context.row
  named_by_environment,  ///< TESSERA_ROW
  cheapest,              ///< lowest predicted time among the rows that fit
  only_row,              ///< no other row of this build fits
  generic_fallback,      ///< only rows that take any problem fit; see the `fallback` event
};

constexpr std::string_view name_of(selection_reason reason) noexcept {
  switch (reason) {
    case selection_reason::none:
      return "none";
    case selection_reason::named_by_call:
      return "named_by_call";
    case selection_reason::named_by_environment:
      return "named_by_environment";
    case selection_reason::cheapest:
      return "cheapest";
    case selection_reason::only_row:
      return "only_row";
    case selection_reason::generic_fallback:
      return "generic_fallback";
  }
  return "invalid";
}

/// A row of the registry, the tier that chose it and why. Trivially copyable.
template <class Instance>
struct selection {
  const Instance* instance = nullptr;  ///< lives as long as the registry
  selection_tier tier = selection_tier::none;
  selection_reason reason = selection_reason::none;
  bool remembered = false;  ///< answered by the memo; tier and reason are the first answer's
  /// Predicted seconds of the cost model; 0 where it was not asked.
  double predicted_seconds = 0;
  /// The row that came closest to fitting better, where `reason` is generic_fallback.
  const Instance* near_miss = nullptr;

  std::string_view row() const noexcept {
    return instance != nullptr ? instance->name : std::string_view{};
  }
};

/// What to do with a row that was asked for by name and cannot run the problem.
enum class ineligible_override : std::uint8_t {
  error,         ///< refuse the call and say what differs
  fall_through,  ///< choose as if no row had been named, and raise an event
};

/// How choices are made; part of every context.
struct selection_policy {
  ineligible_override on_ineligible = ineligible_override::error;
  friend constexpr bool operator==(const selection_policy&, const selection_policy&) = default;
};

}  // namespace tessera
