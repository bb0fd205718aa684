// Tier overlay: the first rule that matches, of the call's overlay, then of the thread's scopes
// from the inside out, then of the process.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include <tessera/runtime/impl/choosers/override.hpp>
#include <tessera/runtime/impl/inquiry.hpp>
#include <tessera/runtime/overlay.hpp>

namespace tessera {

/// A field of a demand as rules see it.
struct field_value {
  key_line text;  ///< as rules spell it
  std::int64_t number = 0;
  bool is_number = false;
};

inline std::optional<field_value> field_of(const family& kind, const demand& asked,
                                           std::string_view name) {
  for (const demand_field& field : kind.fields) {
    if (field.name != name) continue;
    const std::int64_t value = field.value(asked);
    return field_value{text_of(field, value), value, field.words.empty()};
  }
  return std::nullopt;
}

/// True if the demand's field is as the test says. Fields the family does not have never are.
inline bool holds(const field_test& test, const family& kind, const demand& asked) {
  const std::optional<field_value> value = field_of(kind, asked, test.field);
  if (!value) return false;
  if (!test.is_range) return value->text.view() == test.word;
  return value->is_number && value->number >= test.low && value->number <= test.high;
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
      note(asked, rule.row, " is passed over: ", why);
      continue;
    }
    decided = true;
    if (!found.unknown) return {{}, std::move(found.unknown)};
    if (found.row == nullptr) {
      return {{},
              {status_code::ineligible_row, std::string(origin) + ": " + rule.row +
                                                " cannot run this problem: " + found.obstacle}};
    }
    note(asked, origin, " has a rule for the problem: ", rule.row);
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
    note(asked, all.any() ? "no rule of an overlay decides" : "no overlay is in force");
  }
  return given;
}

}  // namespace tessera
