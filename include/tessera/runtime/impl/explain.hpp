// The text of an explanation.
#pragma once

#include <array>
#include <cstdio>
#include <string>

#include <tessera/runtime/explain.hpp>

namespace tessera {

namespace {

/// "12.3 us".
std::string duration(double seconds) {
  std::array<char, 32> text{};
  if (seconds < 1e-3) {
    std::snprintf(text.data(), text.size(), "%.3g us", seconds * 1e6);
  } else {
    std::snprintf(text.data(), text.size(), "%.3g ms", seconds * 1e3);
  }
  return text.data();
}

}  // namespace

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
      text.append("\n  fits ").append(one.row).append(": ").append(duration(one.seconds));
    }
    for (const row_rejection& one : what.rejected) {
      text.append("\n  not  ").append(one.row).append(": ").append(one.reason);
    }
  }
  return text;
}

}  // namespace tessera
