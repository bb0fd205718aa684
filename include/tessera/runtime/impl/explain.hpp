// The text of an explanation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <tessera/runtime/explain.hpp>

namespace tessera {

// Insertion: some hundred rows at most, in little code.
[[gnu::cold]] void sort_by_time(std::vector<row_estimate>& rows) {
  for (std::size_t end = 1; end < rows.size(); ++end) {
    for (std::size_t at = end; at > 0 && rows[at].seconds < rows[at - 1].seconds; --at) {
      std::swap(rows[at], rows[at - 1]);
    }
  }
}

[[gnu::cold]] std::string duration_text(double seconds) {
  const char* const form = seconds < 1e-3 ? "%.4g us" : seconds < 1 ? "%.4g ms" : "%.4g s";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), form,
                seconds * (seconds < 1e-3 ? 1e6
                           : seconds < 1  ? 1e3
                                          : 1));
  return text.data();
}

[[gnu::cold]] std::string to_text(const explanation& what, int level) {
  std::string text = what.problem + " -> ";
  if (what.row.empty()) {
    text += "no row (" + what.refusal + ")";
  } else {
    text.append(what.row).append(" (").append(name_of(what.tier)).append(": ");
    text.append(what.reason_text).append(")");
  }
  if (level >= 2) {
    for (const tier_answer& one : what.tiers) {
      text.append("\n  ").append(name_of(one.tier)).append(": ").append(one.reason);
      if (!one.row.empty() && !one.decided) text.append(" (").append(one.row).append(")");
      if (one.decided) text += " [decides]";
    }
    if (!what.better_row.empty()) text += "\n  a row for this problem: " + what.better_row;
  }
  if (level >= 3) {
    for (const row_estimate& one : what.eligible) {
      text.append("\n  fits ").append(one.row).append(": ").append(duration_text(one.seconds));
    }
    for (const row_rejection& one : what.rejected) {
      text.append("\n  not  ").append(one.row).append(": ").append(one.reason);
    }
  }
  return text;
}

}  // namespace tessera
