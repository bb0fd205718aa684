// Telling about selections: events to the sink of the call or of the process, lines on stderr where
// TESSERA_EXPLAIN asks for them. Only selections that were not remembered come here.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/runtime/environment.hpp>
#include <tessera/runtime/events.hpp>
#include <tessera/runtime/explain.hpp>
#include <tessera/runtime/inquiry.hpp>
#include <tessera/runtime/select.hpp>

namespace tessera {

namespace {

void deliver(const event_sink* sink, const event& what) noexcept {
  if (sink != nullptr && sink->deliver != nullptr) sink->deliver(sink->receiver, what);
}

void print_line(std::string text) {
  text += '\n';
  std::fputs(text.c_str(), stderr);
}

/// The warnings of the environment, to whoever listens first.
void announce_environment(const event_sink* sink) {
  static constinit std::atomic<bool> done{false};
  const environment& process = process_environment();
  if (process.warnings.empty() || done.exchange(true, std::memory_order_relaxed)) return;
  for (const std::string& warning : process.warnings) {
    deliver(sink, {event_kind::warning, {}, {}, warning});
    if (process.explain > 0) print_line("warning: " + warning);
  }
}

/// True the first time a key and a row come together; TESSERA_EXPLAIN tells each once.
template <class Family>
bool is_first(const typename Family::problem_type& problem, std::string_view row) {
  struct told {
    std::string_view op;
    typename Family::key_type key;
    std::string row;
    bool operator==(const told&) const = default;
  };
  static std::mutex guard;
  static std::vector<told> all;
  told now{Family::op_of(problem), key_of(problem), std::string(row)};
  const std::lock_guard lock(guard);
  if (std::find(all.begin(), all.end(), now) != all.end()) return false;
  all.push_back(std::move(now));
  return true;
}

/// "... runs on the generic row ...; rejected: ...; a row for it: ...".
std::string fallback_message(const explanation& what) {
  std::string message = what.problem + " runs on " + what.row +
                        ", which takes any problem; the row list lacks " + what.better_row +
                        "; rejected rows: ";
  for (const row_rejection& one : what.rejected) {
    if (&one != &what.rejected.front()) message += "; ";
    message.append(one.row).append(": ").append(one.reason);
  }
  return message;
}

/// Tells about a selection that has just been made, or refused with `refusal`.
template <class Family>
void announce(const inquiry<Family>& asked, const event_sink* of_call, const status& refusal) {
  const event_sink* const sink = of_call != nullptr ? of_call : installed_event_sink();
  const int level = process_environment().explain;
  if (sink == nullptr && level == 0) return;
  announce_environment(sink);
  const explanation what = explain(asked);
  if (level > 0 && is_first<Family>(asked.problem, what.row)) print_line(to_text(what, level));
  if (sink == nullptr) return;
  for (const tier_answer& one : what.tiers) {
    const bool passed_over = one.tier == selection_tier::override && !one.decided &&
                             !(asked.row_of_call.empty() && asked.row_of_environment.empty());
    if (passed_over && refusal) deliver(sink, {event_kind::warning, what.op, what.row, one.reason});
  }
  if (!refusal) {
    deliver(sink, {event_kind::error, what.op, what.row, refusal.message()});
    return;
  }
  const auto kind =
      what.tier == selection_tier::override ? event_kind::override : event_kind::heuristic;
  deliver(sink, {kind, what.op, what.row, to_text(what, 1)});
  if (what.reason == selection_reason::generic_fallback) {
    deliver(sink, {event_kind::fallback, what.op, what.row, fallback_message(what)});
  }
}

}  // namespace

}  // namespace tessera
