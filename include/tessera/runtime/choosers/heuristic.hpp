// Tier heuristic: the row with the lowest predicted time among those that fit.
#pragma once

#include <algorithm>
#include <string>

#include <tessera/runtime/cost.hpp>
#include <tessera/runtime/inquiry.hpp>

namespace tessera {

/// The row that fails to fit by the least, the most specialised backend first; null if all fit or
/// the device runs none. Says what a generic choice missed.
template <class Family>
const typename Family::instance_type* nearest_miss(const inquiry<Family>& asked) {
  const typename Family::instance_type* nearest = nullptr;
  int least = 0;
  for (const auto& row : asked.instances) {
    if (!asked.device.runs(row.config.target) || asked.fits(row)) continue;
    const int distance = Family::distance(row.config, asked.demand);
    const bool nearer = nearest == nullptr || distance < least ||
                        (distance == least && row.config.target > nearest->config.target);
    if (!nearer) continue;
    nearest = &row;
    least = distance;
  }
  return nearest;
}

/// Rows are compared in the order of their names, so that equal estimates go to the first name.
template <class Family>
answer<Family> choose_cheapest(const inquiry<Family>& asked) {
  const auto facts = Family::facts_of(asked.demand);
  selection<typename Family::instance_type> best;
  int fitting = 0;
  for (const auto& row : asked.instances) {
    if (!asked.fits(row)) continue;
    ++fitting;
    const double seconds = predicted_seconds(Family::estimate(row.config, facts), row.config.target,
                                             asked.device, asked.threads);
    if (asked.notes != nullptr) asked.notes->eligible.push_back({row.name, seconds});
    const bool better = best.instance == nullptr || seconds < best.predicted_seconds ||
                        (seconds == best.predicted_seconds && row.name < best.instance->name);
    if (!better) continue;
    best.instance = &row;
    best.predicted_seconds = seconds;
  }
  if (best.instance == nullptr) {
    note(asked, selection_tier::heuristic, false, "no row fits");
    return {};
  }
  const auto& config = best.instance->config;
  const bool generic = Family::is_generic(config) || (config.target == backend::cpu_generic &&
                                                      asked.device.highest != backend::cpu_generic);
  best.tier = selection_tier::heuristic;
  best.reason = generic        ? selection_reason::generic_fallback
                : fitting == 1 ? selection_reason::only_row
                               : selection_reason::cheapest;
  if (generic) best.near_miss = nearest_miss(asked);
  if (asked.notes != nullptr) {
    note(asked, selection_tier::heuristic, true, "lowest predicted time of ",
         std::to_string(fitting), fitting == 1 ? " row that fits" : " rows that fit");
  }
  return {best, {}};
}

}  // namespace tessera
