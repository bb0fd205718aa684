// Tier override: the row that the call names, else the one that TESSERA_ROW names. Never stored,
// never replaced by another row in silence.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include <tessera/runtime/inquiry.hpp>

namespace tessera {

/// The row of that name, or null.
template <class Instance>
const Instance* find_row(std::span<const Instance> instances, std::string_view name) noexcept {
  const auto found = std::find_if(instances.begin(), instances.end(),
                                  [&](const Instance& row) { return row.name == name; });
  return found == instances.end() ? nullptr : &*found;
}

/// The row whose name shares the longest beginning with `name`; null if there are no rows.
template <class Instance>
const Instance* most_similar_row(std::span<const Instance> instances, std::string_view name) {
  const auto shared = [&](const Instance& row) {
    const auto [end, other] =
        std::mismatch(row.name.begin(), row.name.end(), name.begin(), name.end());
    return end - row.name.begin();
  };
  const auto best =
      std::max_element(instances.begin(), instances.end(),
                       [&](const Instance& a, const Instance& b) { return shared(a) < shared(b); });
  return best == instances.end() ? nullptr : &*best;
}

template <class Family>
[[gnu::cold]] status unknown_row(const inquiry<Family>& asked, std::string_view name,
                                 std::string_view origin) {
  std::string sentence(origin);
  sentence.append(": '").append(name).append("' is not one of the ");
  sentence += std::to_string(asked.instances.size());
  sentence.append(" ").append(Family::name).append(" rows of this build");
  if (const auto* similar = most_similar_row(asked.instances, name)) {
    sentence.append("; the most similar is ").append(similar->name);
  }
  return {status_code::unknown_row, std::move(sentence)};
}

template <class Family>
answer<Family> choose_named(const inquiry<Family>& asked) {
  const bool by_call = !asked.row_of_call.empty();
  const std::string_view name = by_call ? asked.row_of_call : asked.row_of_environment;
  const std::string_view origin = by_call ? "context.row" : "TESSERA_ROW";
  if (name.empty()) {
    note(asked, selection_tier::override, false, "no row is named");
    return {};
  }
  const auto* const row = find_row(asked.instances, name);
  if (row == nullptr) return {{}, unknown_row(asked, name, origin)};
  if (asked.fits(*row)) {
    note(asked, selection_tier::override, true, origin, " names the row");
    const auto reason =
        by_call ? selection_reason::named_by_call : selection_reason::named_by_environment;
    return {{.instance = row, .tier = selection_tier::override, .reason = reason}, {}};
  }
  const std::string obstacle = asked.obstacle(*row);
  if (asked.policy.on_ineligible == ineligible_override::fall_through) {
    note(asked, selection_tier::override, false, name, " is named and passed over: ", obstacle);
    return {};
  }
  return {{},
          {status_code::ineligible_row, std::string(origin) + ": " + std::string(name) +
                                            " cannot run this problem: " + obstacle}};
}

}  // namespace tessera
