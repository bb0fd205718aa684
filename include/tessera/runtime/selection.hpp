// What the chain of choosers answers: which row, who decided, and why. Codes only; sentences are
// made when somebody asks (see explain.hpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include <tessera/runtime/policy.hpp>
#include <tessera/spec/instance.hpp>

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
  overlay_rule,          ///< a rule of an overlay matches
  measured,              ///< a table has a line for this bucket
  measured_nearby,       ///< a table has a line for a near bucket; see `distance`
  tuned,                 ///< measured by this process, on request
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
    case selection_reason::overlay_rule:
      return "overlay_rule";
    case selection_reason::measured:
      return "measured";
    case selection_reason::measured_nearby:
      return "measured_nearby";
    case selection_reason::tuned:
      return "tuned";
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
struct selection {
  const tessera::instance* instance = nullptr;  ///< lives as long as the registry
  selection_tier tier = selection_tier::none;
  selection_reason reason = selection_reason::none;
  bool remembered = false;  ///< answered by the memo; tier and reason are the first answer's
  /// Predicted seconds of the cost model; 0 where it was not asked.
  double predicted_seconds = 0;
  /// Measured median where a table or the tuner chose; else 0.
  double measured_seconds = 0;
  /// Base-2 logarithms between the sizes asked for and those measured, in sum; 0 but for
  /// measured_nearby.
  float distance = 0;
  /// The row that came closest to fitting better, where `reason` is generic_fallback.
  const tessera::instance* near_miss = nullptr;
  /// Counts the calls of this choice while a trace is recorded; else null.
  std::atomic<std::int64_t>* calls = nullptr;

  std::string_view row() const noexcept {
    return instance != nullptr ? instance->name : std::string_view{};
  }
};

}  // namespace tessera
