// The chain of choosers: who is asked for a row, in which order. A pure function of the problem,
// the rows, the device and the circumstances; the only thing it writes is the memory it is given.
//
// To add a tier: write its chooser (a file in choosers/) and one line in `chain`.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <tessera/runtime/choosers/heuristic.hpp>
#include <tessera/runtime/choosers/memory.hpp>
#include <tessera/runtime/choosers/override.hpp>
#include <tessera/runtime/inquiry.hpp>

namespace tessera {

/// The order. The first chooser that does not decline is right.
template <class Family>
inline constexpr std::array chain{
    chooser<Family>{selection_tier::override, &choose_named<Family>},
    chooser<Family>{selection_tier::memory, &recall_selection<Family>},
    chooser<Family>{selection_tier::heuristic, &choose_cheapest<Family>},
};

/// No row fits: names the nearest ones with what each lacks.
template <class Family>
[[gnu::cold]] status no_row(const inquiry<Family>& asked) {
  constexpr std::size_t most = 3;
  struct candidate {
    const typename Family::instance_type* row;
    int distance;
  };
  std::vector<candidate> candidates;
  for (const auto& row : asked.instances) {
    const int elsewhere = asked.device.runs(row.config.target) ? 0 : 16;
    candidates.push_back({&row, Family::distance(row.config, asked.demand) + elsewhere});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const candidate& a, const candidate& b) { return a.distance < b.distance; });
  std::string sentence = "none of the " + std::to_string(asked.instances.size()) + " ";
  sentence.append(Family::name).append(" rows of this build runs ");
  sentence += Family::text_of(asked.problem);
  for (std::size_t i = 0; i < std::min(most, candidates.size()); ++i) {
    const auto& row = *candidates[i].row;
    sentence.append(i == 0 ? ": " : "; ").append(row.name).append(": ");
    sentence += asked.obstacle(row);
  }
  return {status_code::no_row, std::move(sentence)};
}

/// The row for a problem, or why there is none. A call that names a row leaves no trace in the
/// memory.
template <class Family>
result<selection<typename Family::instance_type>> select(const inquiry<Family>& asked) {
  for (const chooser<Family>& one : chain<Family>) {
    answer<Family> given = one.ask(asked);
    if (!given.refusal) return std::move(given.refusal);
    if (given.chosen.instance == nullptr) continue;
    const bool remember = one.tier > selection_tier::memory && asked.memory != nullptr;
    if (remember) asked.memory->remember(asked.demand, asked.threads, given.chosen);
    return given.chosen;
  }
  return no_row(asked);
}

/// The same choice taken apart: every tier is asked, every row is judged, nothing is remembered.
template <class Family>
explanation explain(inquiry<Family> asked) {
  explanation all;
  asked.memory = nullptr;
  asked.notes = &all;
  all.op = Family::op_of(asked.problem);
  all.problem = Family::text_of(asked.problem);
  selection<typename Family::instance_type> chosen;
  for (const chooser<Family>& one : chain<Family>) {
    answer<Family> given = one.ask(asked);
    const bool open = chosen.instance == nullptr && all.refusal.empty();
    if (!given.refusal) {
      all.tiers.push_back({one.tier, open, given.refusal.message()});
      if (open) all.refusal = given.refusal.message();
    } else if (open) {
      chosen = given.chosen;
    }
  }
  if (chosen.instance == nullptr && all.refusal.empty()) all.refusal = no_row(asked).message();
  for (const auto& row : asked.instances) {
    if (!asked.fits(row)) all.rejected.push_back({row.name, asked.obstacle(row)});
  }
  std::stable_sort(
      all.eligible.begin(), all.eligible.end(),
      [](const row_estimate& a, const row_estimate& b) { return a.seconds < b.seconds; });
  if (chosen.instance == nullptr) return all;
  all.row = chosen.row();
  all.tier = chosen.tier;
  all.reason = chosen.reason;
  const auto& config = chosen.instance->config;
  all.reason_text = Family::reason_of(config, Family::facts_of(asked.demand), asked.threads);
  if (chosen.reason == selection_reason::generic_fallback) {
    all.better_row = Family::wanted_row(asked.demand, asked.device, config);
  }
  return all;
}

}  // namespace tessera
