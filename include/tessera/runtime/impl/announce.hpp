// Choices for people: an explanation as text, and telling about selections: events to the sink of
// the call or of the process, lines on stderr where TESSERA_EXPLAIN asks for them. Only selections
// that were not remembered are told.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <tessera/lookup/table.hpp>
#include <tessera/runtime/environment.hpp>
#include <tessera/runtime/events.hpp>
#include <tessera/runtime/impl/inquiry.hpp>
#include <tessera/runtime/impl/select.hpp>
#include <tessera/runtime/selection.hpp>

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
  const double units = seconds < 1e-3 ? 1e6 : seconds < 1 ? 1e3 : 1;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), form, seconds * units);
  return text.data();
}

[[gnu::cold]] std::string to_text(const explanation& what, int level) {
  std::string text = what.problem + " -> ";
  if (what.row.empty()) {
    append(text, {"no row (", what.refusal, ")"});
  } else {
    append(text, {what.row, " (", name_of(what.tier), ": ", what.reason_text, ")"});
  }
  if (level >= 2) {
    for (const tier_answer& said : what.tiers) {
      append(text, {"\n  ", name_of(said.tier), ": ", said.reason});
      if (!said.row.empty() && !said.decided) append(text, {" (", said.row, ")"});
      if (said.decided) text += " [decides]";
    }
    if (!what.better_row.empty()) append(text, {"\n  a row for this problem: ", what.better_row});
  }
  if (level >= 3) {
    for (const row_estimate& estimate : what.eligible) {
      append(text, {"\n  fits ", estimate.row, ": ", duration_text(estimate.seconds)});
    }
    for (const row_rejection& rejection : what.rejected) {
      append(text, {"\n  not  ", rejection.row, ": ", rejection.reason});
    }
  }
  return text;
}

namespace {

void deliver(const event_sink* sink, const event& what) noexcept {
  if (sink != nullptr && sink->deliver != nullptr) sink->deliver(sink->receiver, what);
}

void print_line(std::string text) {
  text += '\n';
  std::fputs(text.c_str(), stderr);
}

/// True the first time the process says it.
[[gnu::cold]] bool is_first(std::string what) {
  static std::mutex guard;
  static auto* const told = new std::unordered_set<std::string>();
  const std::lock_guard lock(guard);
  return told->insert(std::move(what)).second;
}

[[gnu::cold]] void announce_warning(const event_sink* sink, const std::string& warning) {
  deliver(sink, {event_kind::warning, {}, {}, warning});
  if (process_environment().explain > 0) print_line("warning: " + warning);
}

/// The warnings of the environment and of the table files, to whoever listens first.
[[gnu::cold]] void announce_process(const event_sink* sink, const lookup_tables* tables) {
  static constinit std::atomic<bool> done{false};
  if (!done.exchange(true, std::memory_order_relaxed)) {
    for (const std::string& warning : process_environment().warnings) {
      announce_warning(sink, warning);
    }
  }
  if (tables == nullptr) return;
  for (const lookup_table* table : {&tables->user, &tables->site, &tables->shipped}) {
    for (const lookup_file_state& file : table->files()) {
      const std::string warning = warning_of(file);
      if (!warning.empty() && is_first("file " + warning)) announce_warning(sink, warning);
    }
  }
}

/// "... runs on the generic row ...; rejected: ...; a row for it: ...".
[[gnu::cold]] std::string fallback_message(const explanation& what) {
  std::string message =
      sentence({what.problem, " runs on ", what.row, ", which takes any problem; "});
  if (!what.better_row.empty()) append(message, {"the row list lacks ", what.better_row, "; "});
  message += "rejected rows: ";
  for (const row_rejection& rejection : what.rejected) {
    append(message, {&rejection == &what.rejected.front() ? "" : "; ", rejection.row, ": ",
                     rejection.reason});
  }
  return message;
}

/// The event of a choice, by the tier that made it.
constexpr std::array event_of_tier{event_kind::heuristic, event_kind::override, event_kind::overlay,
                                   event_kind::heuristic, event_kind::measured, event_kind::tuned,
                                   event_kind::heuristic};
static_assert(event_of_tier.size() == selection_tier_names.size());

/// Names that a tier before the deciding one passed over.
[[gnu::cold]] void announce_passed_over(const event_sink* sink, const explanation& what) {
  for (const tier_answer& said : what.tiers) {
    if (said.decided) return;
    const bool passed_over = said.reason.find(" passed over: ") != std::string::npos;
    if (passed_over) deliver(sink, {event_kind::warning, what.op, what.row, said.reason});
  }
}

/// Tells about a choice that has just been made, or (not null) refused.
[[gnu::cold]] void announce_explained(const event_sink* sink, int level, const explanation& what,
                                      const status* refusal) {
  const bool is_new =
      level > 0 && is_first(sentence({what.op, " ", what.identity, " ", what.size, " ", what.row}));
  if (is_new) print_line(to_text(what, level));
  for (const stale_line& line : what.stale) {
    if (!is_first("stale " + line.row + line.reason)) continue;
    const std::string message = sentence({what.problem, ": ", line.row, " of the ", line.reason,
                                          "; `tessera tune` measures it again"});
    deliver(sink, {event_kind::stale_row, what.op, line.row, message});
    if (level > 0) print_line("stale row: " + message);
  }
  if (sink == nullptr) return;
  if (refusal != nullptr) {
    deliver(sink, {event_kind::error, what.op, what.row, refusal->message()});
    return;
  }
  announce_passed_over(sink, what);
  deliver(sink, {event_of_tier[static_cast<std::size_t>(what.tier)], what.op, what.row,
                 to_text(what, 1)});
  if (what.reason == selection_reason::generic_fallback) {
    deliver(sink, {event_kind::fallback, what.op, what.row, fallback_message(what)});
  }
}

[[gnu::cold]] inline void announce_to(const event_sink* sink, int level, const inquiry& asked,
                                      const selection* made, const status& refusal) {
  announce_process(sink, asked.tables);
  announce_explained(sink, level, explain(asked, made), made == nullptr ? &refusal : nullptr);
}

/// The same for the chain, if anybody listens: the sink of the call, else of the process, or
/// TESSERA_EXPLAIN.
inline void announce(const inquiry& asked, const event_sink* of_call, const selection* made,
                     const status& refusal) {
  const event_sink* const sink = of_call != nullptr ? of_call : installed_event_sink();
  const int level = process_environment().explain;
  if (sink != nullptr || level > 0) announce_to(sink, level, asked, made, refusal);
}

}  // namespace

}  // namespace tessera
