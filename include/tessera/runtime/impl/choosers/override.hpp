// Tier override: the row that the call names, else the one that TESSERA_ROW names, by name or by
// pattern. Never stored, never replaced by another row in silence.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include <tessera/runtime/impl/inquiry.hpp>
#include <tessera/runtime/overlay.hpp>

namespace tessera {

/// The row whose name shares the longest beginning with `name`; null if there are no rows.
[[gnu::cold]] inline const instance* most_similar_row(const inquiry& asked, std::string_view name) {
  const instance* best = nullptr;
  std::ptrdiff_t longest = -1;
  asked.for_each_row([&](const instance& row) {
    const auto end =
        std::mismatch(row.name.begin(), row.name.end(), name.begin(), name.end()).first;
    if (end - row.name.begin() <= longest) return;
    longest = end - row.name.begin();
    best = &row;
  });
  return best;
}

[[gnu::cold]] inline status unknown_row(const inquiry& asked, std::string_view name,
                                        std::string_view origin) {
  std::string sentence(origin);
  sentence.append(": '").append(name).append("' is not one of the ");
  sentence += std::to_string(asked.row_count());
  sentence.append(" ").append(asked.kind.name).append(" rows of this build");
  if (const auto* similar = most_similar_row(asked, name)) {
    sentence.append("; the most similar is ").append(similar->name);
  }
  return {status_code::unknown_row, std::move(sentence)};
}

/// A row asked for by name or pattern: the row (null: none fits), or why the request itself is
/// wrong. `obstacle` becomes the reason why none fits.
struct requested_row {
  const instance* row = nullptr;
  status unknown{};
  std::string obstacle;
};

[[gnu::cold]] inline requested_row find_requested(const inquiry& asked, std::string_view name,
                                                  std::string_view origin) {
  requested_row found;
  if (!is_pattern(name)) {
    const instance* const row = asked.row_named(name);
    if (row == nullptr) {
      found.unknown = unknown_row(asked, name, origin);
    } else if (asked.fits(*row)) {
      found.row = row;
    } else {
      found.obstacle = asked.obstacle(*row);
    }
    return found;
  }
  double seconds = 0;
  int fitting = 0;
  found.row = cheapest_row(
      asked, [&](const instance& row) { return matches_pattern(name, row.name); }, seconds,
      fitting);
  if (found.row != nullptr) return found;
  const instance* first = nullptr;
  int matching = 0;
  asked.for_each_row([&](const instance& row) {
    if (!matches_pattern(name, row.name)) return;
    if (matching++ == 0) first = &row;
  });
  if (first == nullptr) {
    found.unknown = unknown_row(asked, name, origin);
  } else {
    found.obstacle = "none of the " + std::to_string(matching) + " rows of that form fits; " +
                     std::string(first->name) + ": " + asked.obstacle(*first);
  }
  return found;
}

[[gnu::cold]] inline answer choose_named(const inquiry& asked) {
  const bool by_call = !asked.row_of_call.empty();
  const std::string_view name = by_call ? asked.row_of_call : asked.row_of_environment;
  const std::string_view origin = by_call ? "context.row" : "TESSERA_ROW";
  if (name.empty()) {
    note(asked, "no row is named");
    return {};
  }
  requested_row found = find_requested(asked, name, origin);
  if (!found.unknown) return {{}, std::move(found.unknown)};
  if (found.row != nullptr) {
    note(asked, origin, " names the row");
    const auto reason =
        by_call ? selection_reason::named_by_call : selection_reason::named_by_environment;
    return {{.instance = found.row, .tier = selection_tier::override, .reason = reason}, {}};
  }
  if (asked.policy.on_ineligible == ineligible_override::fall_through) {
    note(asked, name, " is named and passed over: ", found.obstacle);
    return {};
  }
  return {{},
          {status_code::ineligible_row, std::string(origin) + ": " + std::string(name) +
                                            " cannot run this problem: " + found.obstacle}};
}

}  // namespace tessera
