// Tier heuristic: the row with the lowest predicted time among those that fit.
#pragma once

#include <string>

#include <tessera/runtime/cost.hpp>
#include <tessera/runtime/impl/inquiry.hpp>

namespace tessera {

/// The row that fails to fit by the least, the most specialised backend first; null if all fit or
/// the device runs none. Says what a generic choice missed.
[[gnu::cold]] inline const instance* nearest_miss(const inquiry& asked) {
  const instance* nearest = nullptr;
  int least = 0;
  asked.for_each_row([&](const instance& row) {
    if (!asked.device.runs(row.target) || asked.fits(row)) return;
    const int distance = asked.kind.distance(row.config, asked.demand);
    const bool nearer = nearest == nullptr || distance < least ||
                        (distance == least && row.target > nearest->target);
    if (!nearer) return;
    nearest = &row;
    least = distance;
  });
  return nearest;
}

/// True if the row stands in for one that does not exist: it takes any problem, or it is portable
/// code on a machine that has more.
inline bool is_stand_in(const inquiry& asked, const instance& row) {
  return asked.kind.is_generic(row.config) ||
         (row.target == backend::cpu_generic && asked.device.highest != backend::cpu_generic);
}

[[gnu::cold]] inline answer choose_cheapest(const inquiry& asked) {
  // Predictions are no better than this: where a special row is as near, it is taken.
  constexpr double near_tie = 1.1;
  const bool special_only = asked.policy.generic == generic_use::refuse;
  const auto is_special = [&](const instance& row) { return !is_stand_in(asked, row); };
  selection best{.tier = selection_tier::heuristic};
  int fitting = 0;
  best.instance = cheapest_row(
      asked, [&](const instance& row) { return !special_only || is_special(row); },
      best.predicted_seconds, fitting);
  if (best.instance != nullptr && !is_special(*best.instance)) {
    double seconds = 0;
    int count = 0;
    const instance* special = cheapest_row(asked, is_special, seconds, count);
    if (special != nullptr && seconds <= near_tie * best.predicted_seconds) {
      best.instance = special;
      best.predicted_seconds = seconds;
    }
  }
  if (best.instance == nullptr) {
    note(asked,
         special_only ? "no special row fits, and the policy refuses generic ones" : "no row fits");
    return {};
  }
  const bool generic = is_stand_in(asked, *best.instance);
  best.reason = generic        ? selection_reason::generic_fallback
                : fitting == 1 ? selection_reason::only_row
                               : selection_reason::cheapest;
  if (generic) best.near_miss = nearest_miss(asked);
  if (asked.notes != nullptr) {
    note(asked, "lowest predicted time of ", std::to_string(fitting),
         fitting == 1 ? " row that fits" : " rows that fit");
  }
  return {best, {}};
}

}  // namespace tessera
