// Tiers override and overlay: rows that somebody named, by name or by pattern. Override: the call,
// else TESSERA_ROW; never stored, never replaced by another row in silence. Overlay: the first rule
// that matches, of the call's overlay, then of the thread's scopes from the inside out, then of the
// process.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include <tessera/runtime/impl/inquiry.hpp>
#include <tessera/runtime/overlay.hpp>

namespace tessera {

/// The row whose name shares the longest beginning with `name`; null if there are no rows.
[[gnu::cold]] inline const instance* most_similar_row(const inquiry& asked, std::string_view name) {
  const instance* best = nullptr;
  std::ptrdiff_t longest = -1;
  for (std::size_t at = 0; const instance* row = asked.next_row(at);) {
    const auto shared = std::ranges::mismatch(row->name, name).in1 - row->name.begin();
    if (shared <= longest) continue;
    longest = shared;
    best = row;
  }
  return best;
}

[[gnu::cold]] inline status unknown_row(const inquiry& asked, std::string_view name,
                                        std::string_view origin) {
  const instance* const similar = most_similar_row(asked, name);
  return refusal(
      status_code::unknown_row,
      {origin, ": '", name, "' is not one of the ", asked.row_count(), " ", asked.kind.name,
       " rows of this build", similar != nullptr ? "; the most similar is " : "",
       similar != nullptr ? similar->name : ""});
}

/// A row asked for by name or pattern: the row (null: none fits), or why the request itself is
/// wrong. `obstacle` becomes the reason why none fits.
struct requested_row {
  const instance* row = nullptr;
  status unknown{};
  std::string obstacle{};

  /// Why the request is refused where no row was found.
  [[gnu::cold]] status refused(std::string_view name, std::string_view origin) && {
    if (!unknown) return std::move(unknown);
    return refusal(status_code::ineligible_row,
                   {origin, ": ", name, " cannot run this problem: ", obstacle});
  }
};

[[gnu::cold]] inline requested_row find_requested(const inquiry& asked, std::string_view name,
                                                  std::string_view origin) {
  if (!is_pattern(name)) {
    const instance* const row = asked.row_named(name);
    if (row == nullptr) return {nullptr, unknown_row(asked, name, origin)};
    if (asked.fits(*row)) return {row};
    return {nullptr, {}, asked.obstacle(*row)};
  }
  if (const instance* row = cheapest_row(asked, {.pattern = name}).row) return {row};
  const instance* first = nullptr;
  int matching = 0;
  for (std::size_t at = 0; const instance* row = asked.next_row(at);) {
    if (matches_pattern(name, row->name) && matching++ == 0) first = row;
  }
  if (first == nullptr) return {nullptr, unknown_row(asked, name, origin)};
  return {nullptr,
          {},
          sentence({"none of the ", matching, " rows of that form fits; ", first->name, ": ",
                    asked.obstacle(*first)})};
}

[[gnu::cold]] inline answer choose_named(const inquiry& asked) {
  const bool by_call = !asked.row_of_call.empty();
  const std::string_view name = by_call ? asked.row_of_call : asked.row_of_environment;
  const std::string_view origin = by_call ? "context.row" : "TESSERA_ROW";
  if (name.empty()) {
    note(asked, {"no row is named"});
    return {};
  }
  requested_row found = find_requested(asked, name, origin);
  if (found.row != nullptr) {
    note(asked, {origin, " names the row"});
    const auto reason =
        by_call ? selection_reason::named_by_call : selection_reason::named_by_environment;
    return {{.instance = found.row, .tier = selection_tier::override, .reason = reason}, {}};
  }
  if (found.unknown && asked.policy.on_ineligible == ineligible_override::fall_through) {
    note(asked, {name, " is named and passed over: ", found.obstacle});
    return {};
  }
  return {{}, std::move(found).refused(name, origin)};
}

/// True if the demand's field is as the test says. Fields the family does not have never are.
[[gnu::cold]] inline bool holds(const field_test& test, const family& kind, const demand& asked) {
  for (const demand_field& field : kind.fields) {
    if (field.name != test.field) continue;
    const std::int64_t value = field.value(asked);
    if (!test.is_range) return text_of(field, value).view() == test.word;
    return field.words.empty() && value >= test.low && value <= test.high;
  }
  return false;
}

[[gnu::cold]] inline bool matches(const overlay_rule& rule, const inquiry& asked) {
  const bool concerned =
      rule.op == "*" || rule.op == asked.kind.name || rule.op == asked.problem.op->name;
  if (!concerned) return false;
  for (const field_test& test : rule.tests) {
    if (!holds(test, asked.kind, asked.demand)) return false;
  }
  if (rule.identity.empty() && rule.size.empty()) return true;
  const key_text key =
      key_text_of(asked.kind, asked.demand, asked.threads, asked.device.kind, asked.policy.promise);
  return (rule.identity.empty() || rule.identity == key.identity.view()) &&
         (rule.size.empty() || rule.size == key.size.view());
}

/// The answer of the first rule that matches and is not passed over; `decided` tells whether there
/// is one.
[[gnu::cold]] inline answer choose_by_rules(const inquiry& asked,
                                            std::span<const overlay_rule> rules,
                                            std::string_view origin, bool& decided) {
  for (const overlay_rule& rule : rules) {
    if (!matches(rule, asked)) continue;
    requested_row found = find_requested(asked, rule.row, origin);
    const bool refuses = rule.on_ineligible == ineligible_override::error &&
                         asked.policy.on_ineligible == ineligible_override::error;
    if (found.row == nullptr && !refuses) {
      const std::string& why = found.unknown ? found.obstacle : found.unknown.message();
      note(asked, {rule.row, " is passed over: ", why});
      continue;
    }
    decided = true;
    if (found.row == nullptr) return {{}, std::move(found).refused(rule.row, origin)};
    note(asked, {origin, " has a rule for the problem: ", rule.row});
    return {{.instance = found.row,
             .tier = selection_tier::overlay,
             .reason = selection_reason::overlay_rule},
            {}};
  }
  return {};
}

[[gnu::cold]] inline answer choose_by_overlay(const inquiry& asked) {
  const overlays_in_force& all = asked.overlays;
  bool decided = false;
  answer given;
  if (all.of_call != nullptr) {
    given = choose_by_rules(asked, all.of_call->rules(), "context.overlays", decided);
  }
  for (const overlay_scope* scope = all.of_thread; scope != nullptr && !decided;
       scope = scope->outer()) {
    given = choose_by_rules(asked, scope->rules(), "overlay_scope", decided);
  }
  if (!decided && all.of_process != nullptr) {
    given = choose_by_rules(asked, all.of_process->rules(), "TESSERA_OVERLAY", decided);
  }
  if (!decided) {
    note(asked, {all.any() ? "no rule of an overlay decides" : "no overlay is in force"});
  }
  return given;
}

}  // namespace tessera
