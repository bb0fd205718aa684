// Tiers persistent, autotune and heuristic: rows by their measured or predicted time. Persistent: a
// line of a lookup table, of the user's, then of the site's, then of the one inside the library;
// only a line measured with the kernels of this build answers, others are stale and at most hint at
// a row. Autotune: the tuner that the caller brought measures the rows that fit, if the policy lets
// it. Heuristic: the lowest predicted time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/lookup/table.hpp>
#include <tessera/runtime/cost.hpp>
#include <tessera/runtime/impl/inquiry.hpp>

namespace tessera {

/// The tables a policy allows, in the order they are asked.
struct table_layer {
  lookup_layer layer = lookup_layer::user;
  const lookup_table* table = nullptr;  ///< null: not asked
};

inline std::array<table_layer, 3> layers_of(const lookup_tables* tables, table_use use) noexcept {
  std::array<table_layer, 3> layers{};
  if (tables == nullptr || use == table_use::none) return layers;
  const bool all = use == table_use::all;
  layers[0] = {lookup_layer::user, all ? &tables->user : nullptr};
  layers[1] = {lookup_layer::site, all ? &tables->site : nullptr};
  layers[2] = {lookup_layer::shipped, &tables->shipped};
  return layers;
}

/// The key of an inquiry in full.
struct table_question {
  device_class_text device;
  key_text key;
};

[[gnu::cold]] inline table_question question_of(const inquiry& asked,
                                                bits_promise promise) noexcept {
  return {device_class_of(asked.device),
          key_text_of(asked.kind, asked.demand, asked.threads, asked.device.kind, promise)};
}

/// Why a line cannot answer; empty if it can. `row` becomes its row in this build, if there is one.
[[gnu::cold]] inline std::string_view staleness(const inquiry& asked, const lookup_record& line,
                                                const instance*& row) noexcept {
  row = asked.row_named(line.row);
  if (line.semantic_version != asked.kind.semantic_version)
    return "is of another version of the family";
  if (row == nullptr) return "is not in this build";
  if (line.code_version != asked.kind.code_version(kind_of(row->target)))
    return "was measured with other kernels";
  return asked.fits(*row) ? std::string_view() : "does not run this problem here";
}

/// Remembers in the notes that a line was passed over.
[[gnu::cold]] inline void note_stale(const inquiry& asked, const lookup_record& line,
                                     lookup_layer layer, std::string_view why,
                                     const instance* row) {
  if (asked.notes == nullptr) return;
  std::string reason = sentence({name_of(layer), " table: the row ", why});
  if (row != nullptr && !asked.fits(*row)) append(reason, {": ", asked.obstacle(*row)});
  note(asked, {line.row, " is stale, ", reason});
  asked.notes->stale.push_back({line.row, std::move(reason)});
}

[[gnu::cold]] inline void note_measured(const inquiry& asked, const lookup_record& line,
                                        lookup_layer layer, double distance) {
  if (asked.notes == nullptr) return;
  const auto number_text = [](const char* form, double number) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), form, number);
    return std::string(text.data());
  };
  const auto add = [&](const std::string& row, double median_us) {
    asked.notes->measured.push_back({row, median_us * 1e-6});
  };
  std::string text =
      sentence({name_of(layer), " table, measured ", duration_text(line.median_us * 1e-6)});
  add(line.row, line.median_us);
  if (line.default_us > 0 && line.median_us > 0) {
    append(text, {number_text(", %.3gx as fast as ", line.default_us / line.median_us),
                  line.default_row.empty() ? "the default" : line.default_row});
    add(line.default_row, line.default_us);
  }
  if (line.runner_up_us > 0) add(line.runner_up, line.runner_up_us);
  if (distance > 0) {
    append(text, {number_text(", at a size %.3g doublings away (", distance), line.size, ")"});
  }
  note(asked, {text});
}

/// What one table says to one key.
[[gnu::cold]] inline answer ask_table(const inquiry& asked, const table_layer& from,
                                      const table_question& question) {
  const auto judge = [&](const lookup_record& line, double distance) -> answer {
    const instance* row = nullptr;
    if (const std::string_view why = staleness(asked, line, row); !why.empty()) {
      note_stale(asked, line, from.layer, why, row);
      return {};
    }
    note_measured(asked, line, from.layer, distance);
    return {
        {.instance = row,
         .tier = selection_tier::persistent,
         .reason = distance > 0 ? selection_reason::measured_nearby : selection_reason::measured,
         .measured_seconds = line.median_us * 1e-6,
         .distance = static_cast<float>(distance)},
        {}};
  };
  const auto& [identity, size] = question.key;
  const std::string_view code = asked.kind.code_version(asked.device.kind);
  if (const auto* line =
          from.table->exact(asked.kind.name, question.device, identity, size, code)) {
    if (answer given = judge(*line, 0); given.chosen.instance != nullptr) return given;
  }
  if (asked.policy.nearest == nearest_use::never || asked.kind.max_log2_distance <= 0) return {};
  const nearest_record near = from.table->nearest(asked.kind.name, question.device, identity, size,
                                                  asked.kind.max_log2_distance, code);
  if (!near || near.log2_distance <= 0) return {};
  return judge(*near.record, near.log2_distance);
}

[[gnu::cold]] inline answer choose_measured(const inquiry& asked) {
  const auto layers = layers_of(asked.tables, asked.policy.tables);
  if (layers.back().table == nullptr) {
    note(asked, {"no table is asked"});
    return {};
  }
  const auto has_lines = [](const table_layer& of) { return of.table && !of.table->empty(); };
  const bool any_lines = std::ranges::any_of(layers, has_lines);
  // Measurements made under the promise come first, then those made without: their rows are checked
  // for the promise like any other.
  for (const bits_promise promise : {asked.policy.promise, bits_promise::none}) {
    if (!any_lines) break;  // the question is not worth its spelling
    const table_question question = question_of(asked, promise);
    for (const table_layer& layer : layers) {
      if (!has_lines(layer)) continue;
      answer line = ask_table(asked, layer, question);
      if (line.chosen.instance != nullptr) return line;
    }
    if (asked.policy.promise == bits_promise::none) break;
  }
  note(asked, {"no table has a line that answers"});
  return {};
}

/// The row of a stale line for this key that would fit: worth measuring first. Empty if none.
[[gnu::cold]] inline std::string_view hint_of(const inquiry& asked) {
  const table_question question = question_of(asked, asked.policy.promise);
  for (const table_layer& layer : layers_of(asked.tables, asked.policy.tables)) {
    if (layer.table == nullptr) continue;
    const auto* line =
        layer.table->exact(asked.kind.name, question.device, question.key.identity,
                           question.key.size, asked.kind.code_version(asked.device.kind));
    if (line == nullptr) continue;
    const auto* row = asked.row_named(line->row);
    if (row != nullptr && asked.fits(*row)) return row->name;
  }
  return {};
}

/// The row that fails to fit by the least, the most specialised backend first; null if all fit or
/// the device runs none. Says what a generic choice missed.
[[gnu::cold]] inline const instance* nearest_miss(const inquiry& asked) {
  const instance* nearest = nullptr;
  int least = 0;
  for (std::size_t at = 0; const instance* row = asked.next_row(at);) {
    if (!asked.device.runs(row->target) || asked.fits(*row)) continue;
    const int distance = asked.kind.distance(row->config, asked.demand);
    const bool nearer = nearest == nullptr || distance < least ||
                        (distance == least && row->target > nearest->target);
    if (!nearer) continue;
    nearest = row;
    least = distance;
  }
  return nearest;
}

[[gnu::cold]] inline answer choose_cheapest(const inquiry& asked) {
  // Predictions are no better than this: where a special row is as near, it is taken.
  constexpr double near_tie = 1.1;
  const bool special_only = asked.policy.generic == generic_use::refuse;
  cheapest_row best(asked, {.special = special_only});
  const int fitting = best.count;
  if (fitting == 0) {
    note(asked, {special_only ? "no special row fits, and the policy refuses generic ones"
                              : "no row fits"});
    return {};
  }
  if (is_stand_in(asked, *best.row)) {
    const cheapest_row special(asked, {.special = true});
    if (special.row != nullptr && special.seconds <= near_tie * best.seconds) best = special;
  }
  const bool generic = is_stand_in(asked, *best.row);
  note(asked,
       {"lowest predicted time of ", fitting, fitting == 1 ? " row that fits" : " rows that fit"});
  return {{.instance = best.row,
           .tier = selection_tier::heuristic,
           .reason = generic        ? selection_reason::generic_fallback
                     : fitting == 1 ? selection_reason::only_row
                                    : selection_reason::cheapest,
           .predicted_seconds = best.seconds,
           .near_miss = generic ? nearest_miss(asked) : nullptr},
          {}};
}

/// Hands the rows that fit to the tuner.
[[gnu::cold]] inline answer measure_rows(const inquiry& asked) {
  const answer by_cost = choose_cheapest(asked);
  if (by_cost.chosen.instance == nullptr) return {};
  std::vector<std::string_view> names;
  for (std::size_t at = 0; const instance* row = asked.next_fitting(at);) {
    names.insert(std::lower_bound(names.begin(), names.end(), row->name), row->name);
  }

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
  note(asked, {allowed ? "no tuner is given" : "the policy does not allow it"});
  return {};
}

}  // namespace tessera
