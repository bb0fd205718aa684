// The chain of choosers: who is asked for a row, in which order. A pure function of the problem,
// the rows, the device, the tables and the circumstances; the only thing it writes is the memory it
// is given.
//
// To add a tier: write its chooser and one line in `chain`.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include <tessera/runtime/impl/choosers/named.hpp>
#include <tessera/runtime/impl/choosers/timed.hpp>
#include <tessera/runtime/impl/inquiry.hpp>

namespace tessera {

/// Where a demand is remembered: problems of several GPUs lie apart.
inline std::uint64_t hash_for(const inquiry& asked) noexcept {
  constexpr std::uint64_t odd = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio
  return asked.demand.hash() + static_cast<std::uint64_t>(asked.device.ordinal) * odd;
}

/// What is remembered, or null; valid until this thread remembers again.
inline const selection* recalled(const inquiry& asked) noexcept {
  if (asked.memory == nullptr) return nullptr;
  const std::uint64_t hash = hash_for(asked);
  const circumstances where = asked.where();
  if (const auto* known = asked.memory->recall(asked.demand, hash, where)) return known;
  if (asked.process_memory == nullptr) return nullptr;
  const auto known = asked.process_memory->recall(asked.demand, hash, where);
  return known ? asked.memory->remember(asked.demand, hash, where, *known) : nullptr;
}

/// Whoever asks the chain has no earlier choice, or wants to know what it would be without.
[[gnu::cold]] inline answer decline_to_recall(const inquiry& asked) {
  note(asked, {"no earlier choice is used"});
  return {};
}

inline void remember_selection(const inquiry& asked, const selection& chosen) {
  if (asked.memory == nullptr) return;
  const std::uint64_t hash = hash_for(asked);
  const circumstances where = asked.where();
  asked.memory->remember(asked.demand, hash, where, chosen);
  if (asked.process_memory != nullptr) {
    asked.process_memory->remember(asked.demand, hash, where, chosen);
  }
}

/// The order. The first chooser that does not decline is right.
inline constexpr std::array chain{
    chooser{selection_tier::override, &choose_named},
    chooser{selection_tier::overlay, &choose_by_overlay},
    chooser{selection_tier::memory, &decline_to_recall},
    chooser{selection_tier::persistent, &choose_measured},
    chooser{selection_tier::autotune, &choose_tuned},
    chooser{selection_tier::heuristic, &choose_cheapest},
};

/// The rows that fail to fit by the least, nearest first; null where there are no more.
[[gnu::cold]] inline std::array<const instance*, 3> nearest_rows(const inquiry& asked) {
  std::array<const instance*, 3> nearest{};
  std::array<int, 3> distances{};
  for (std::size_t number = 0; const instance* row = asked.next_row(number);) {
    if (asked.fits(*row)) continue;
    const bool other_kind = is_cpu(row->target) != (asked.device.kind == device_kind::cpu);
    const int elsewhere = asked.device.runs(row->target) ? 0 : other_kind ? 32 : 16;
    int distance = asked.kind.distance(row->config, asked.demand) + elsewhere;
    std::size_t at = nearest.size();
    while (at > 0 && (nearest[at - 1] == nullptr || distance < distances[at - 1])) --at;
    for (; at < nearest.size(); ++at) {
      std::swap(nearest[at], row);
      std::swap(distances[at], distance);
    }
  }
  return nearest;
}

/// No row fits: names the nearest ones with what each lacks, and the row to add.
[[gnu::cold]] inline status no_row(const inquiry& asked) {
  std::string text = sentence({"none of the ", asked.row_count(), " ", asked.kind.name,
                               " rows of this build runs ", text_of(asked.problem)});
  std::string_view before = ": ";
  for (const instance* row : nearest_rows(asked)) {
    if (row == nullptr) break;
    append(text, {before, row->name, ": ", asked.obstacle(*row)});
    before = "; ";
  }
  if (asked.policy.generic == generic_use::refuse) text += "; the policy refuses generic rows";
  const instance* const generic = cheapest_row(asked).row;
  const std::string wanted = asked.kind.wanted_row(asked.demand, asked.device,
                                                   generic != nullptr ? generic->config : nullptr);
  if (!wanted.empty()) append(text, {"; the row list lacks ", wanted});
  return {status_code::no_row, std::move(text)};
}

/// The choice without the memory, remembered where there is one.
[[gnu::cold]] inline result<selection> select_anew(const inquiry& asked) {
  for (const chooser& member : chain) {
    answer given = member.ask(asked);
    if (!given.refusal) return std::move(given.refusal);
    if (given.chosen.instance == nullptr) continue;
    if (asked.counter_of != nullptr) given.chosen.calls = asked.counter_of(asked.problem);
    if (member.tier > selection_tier::override) remember_selection(asked, given.chosen);
    return given.chosen;
  }
  return no_row(asked);
}

/// The row for a problem, or why there is none. A call that names a row leaves no trace in the
/// memory. What is remembered holds for the overlays it was made under and no others, so that the
/// memory may be asked first: that changes what a choice costs, not what it is.
inline result<selection> select(const inquiry& asked) {
  if (!asked.names_a_row()) {
    if (const auto* known = recalled(asked)) return *known;
  }
  return select_anew(asked);
}

/// What the policy's promise costs: the predicted time of the chosen row beside that of the row
/// that would be chosen without it. Empty without a promise.
[[gnu::cold]] inline std::string cost_of_promise(const inquiry& asked, const instance& chosen) {
  if (asked.policy.promise == bits_promise::none) return {};
  inquiry freely = asked;
  freely.policy.promise = bits_promise::none;
  freely.demand = demand_for(asked.kind, asked.problem, freely.policy);
  freely.memory = nullptr;
  freely.tuner = nullptr;
  freely.counter_of = nullptr;
  freely.notes = nullptr;
  const result<selection> other = select_anew(freely);
  if (!other) return {};
  const double kept = freely.predicted(chosen, freely.facts());
  const double best = freely.predicted(*other->instance, freely.facts());
  const bool alone = asked.policy.promise == bits_promise::batch_invariant;
  const std::string start =
      sentence({"; ", alone ? "batch invariant" : "deterministic", " results cost "});
  if (other->instance == &chosen || best >= kept) return start + "nothing";
  const std::int64_t hundredths = std::llround(kept / best * 100);
  return start + sentence({hundredths / 100, hundredths % 100 < 10 ? ".0" : ".", hundredths % 100,
                           " times the time: ", duration_text(kept), " predicted, ",
                           duration_text(best), " by ", other->instance->name});
}

/// What the answer of a tier rests on, for people.
[[gnu::cold]] inline std::string reason_text_of(const inquiry& asked, const selection& chosen,
                                                const explanation& all) {
  std::string text;
  for (const tier_answer& said : all.tiers) {
    const bool says_more = said.tier != selection_tier::heuristic && !said.reason.empty();
    if (said.decided && says_more) append(text, {said.reason, "; "});
  }
  text += asked.kind.reason_of(chosen.instance->config, asked.facts(), asked.threads);
  return text += cost_of_promise(asked, *chosen.instance);
}

/// The same choice taken apart: every tier is asked, every row is judged, nothing is remembered or
/// measured. `made` is the choice that was made, if one was: it stands where asking again would
/// give another.
[[gnu::cold]] inline explanation explain(inquiry asked, const selection* made = nullptr) {
  explanation all;
  asked.memory = nullptr;
  asked.tuner = nullptr;
  asked.notes = &all;
  all.op = asked.problem.op->name;
  all.problem = text_of(asked.problem);
  const table_question question = question_of(asked, asked.policy.promise);
  all.device_class = question.device.view();
  all.identity = question.key.identity.view();
  all.size = question.key.size.view();
  selection chosen;
  for (const chooser& member : chain) {
    all.tiers.push_back({member.tier, false, {}, {}});
    answer given = member.ask(asked);
    const bool by_tuner =
        made != nullptr && made->tier == member.tier && member.tier == selection_tier::autotune;
    if (by_tuner) {
      given.chosen = *made;
      all.tiers.back().reason = "measured now";
    }
    tier_answer& said = all.tiers.back();
    const bool open = chosen.instance == nullptr && all.refusal.empty();
    if (!given.refusal) {
      said.reason = given.refusal.message();
      said.decided = open;
      if (open) all.refusal = given.refusal.message();
    } else if (given.chosen.instance != nullptr) {
      said.row = given.chosen.row();
      said.decided = open;
      if (open) chosen = given.chosen;
    }
  }
  if (chosen.instance == nullptr && all.refusal.empty()) all.refusal = no_row(asked).message();
  const demand_facts facts = asked.facts();
  for (std::size_t at = 0; const instance* row = asked.next_row(at);) {
    if (asked.fits(*row)) {
      all.eligible.push_back({row->name, asked.predicted(*row, facts)});
    } else {
      all.rejected.push_back({row->name, asked.obstacle(*row)});
    }
  }
  sort_by_time(all.eligible);
  if (chosen.instance == nullptr) return all;
  all.row = chosen.row();
  all.tier = chosen.tier;
  all.reason = chosen.reason;
  all.reason_text = reason_text_of(asked, chosen, all);
  if (chosen.reason == selection_reason::generic_fallback) {
    all.better_row = asked.kind.wanted_row(asked.demand, asked.device, chosen.instance->config);
  }
  return all;
}

}  // namespace tessera
