// Tier autotune: the tuner that the caller brought measures the rows that fit, if the policy lets
// it.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/runtime/impl/choosers/heuristic.hpp>
#include <tessera/runtime/impl/choosers/persistent.hpp>
#include <tessera/runtime/impl/inquiry.hpp>

namespace tessera {

/// Hands the rows that fit to the tuner.
[[gnu::cold]] inline answer measure_rows(const inquiry& asked) {
  const answer by_cost = choose_cheapest(asked);
  if (by_cost.chosen.instance == nullptr) return {};
  std::vector<std::string_view> names;
  asked.for_each_row([&](const instance& row) {
    if (!asked.fits(row)) return;
    names.insert(std::lower_bound(names.begin(), names.end(), row.name), row.name);
  });

  const table_question question = question_of(asked, asked.policy.promise);
  const std::string problem = text_of(asked.problem);
  autotune_answer found;
  const bool answered =
      asked.tuner->tune(asked.tuner->state,
                        {.family = asked.kind.name,
                         .problem = problem,
                         .device_class = question.device,
                         .identity = question.key.identity,
                         .size = question.key.size,
                         .code_version = asked.kind.code_version(asked.device.kind),
                         .default_row = by_cost.chosen.instance->name,
                         .hint = hint_of(asked),
                         .rows = names,
                         .threads = asked.threads},
                        found);
  if (!answered || found.row >= names.size()) return {};
  return {{.instance = asked.row_named(names[found.row]),
           .tier = selection_tier::autotune,
           .reason = selection_reason::tuned,
           .measured_seconds = found.median_us * 1e-6},
          {}};
}

inline answer choose_tuned(const inquiry& asked) {
  const bool allowed = asked.policy.autotune == autotune_use::on_miss;
  if (allowed && asked.tuner != nullptr && asked.tuner->tune != nullptr) return measure_rows(asked);
  note(asked, allowed ? "no tuner is given" : "the policy does not allow it");
  return {};
}

}  // namespace tessera
