#include "tune_report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <boost/json/array.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <tessera/lookup/store.hpp>
#include <tessera/runtime/key.hpp>
#include <tessera/version.hpp>

#include "execution.hpp"
#include "table.hpp"

namespace tessera::tool {
namespace {

namespace json = boost::json;

json::string text(std::string_view view) {
  return json::string(view);
}

std::string milliseconds(double seconds) {
  return fmt::format("{:.4g}", seconds * 1e3);
}

std::string_view sentence_of(tuner::decision_reason reason) {
  switch (reason) {
    case tuner::decision_reason::faster:
      return "faster";
    case tuner::decision_reason::default_best:
      return "the default is the fastest";
    case tuner::decision_reason::gain_too_small:
      return "too little to gain";
    case tuner::decision_reason::within_noise:
      return "within the noise";
    case tuner::decision_reason::default_failed:
      return "the default failed";
    case tuner::decision_reason::nothing_timed:
      return "no row could be timed";
    case tuner::decision_reason::disturbed:
      return "other programs disturbed it";
    case tuner::decision_reason::not_repeated:
      return "the gain did not repeat";
  }
  return "invalid";
}

/// True if another row was a little faster than the row to be used: equals go to the default, to
/// less code, to the name.
bool is_tie(const tuner::tuned_problem& problem) {
  return !problem.rows.empty() && !problem.row.empty() &&
         problem.rows.front().state == tuner::row_state::timed &&
         problem.rows.front().row != problem.row;
}

std::string verdict_of(const tuner::tuned_problem& problem) {
  if (problem.skipped) return "known";
  const std::string text(sentence_of(problem.reason));
  const bool tie = problem.kind == tuner::outcome_kind::tuned && is_tie(problem);
  return tie ? text + ", tied with another" : text;
}

/// About what a problem takes: each row a few times in the gate, then the race.
double expected_seconds(const tuner::planned_problem& problem,
                        const tuner::measuring_rules& rules) {
  const auto rows = static_cast<double>(problem.candidates.size());
  const double rounds = static_cast<double>(rules.least_rounds) * rows * problem.predicted_seconds;
  return 0.3 + rows * (0.15 + 3 * problem.predicted_seconds) + std::max(rules.race_seconds, rounds);
}

double seconds_of(const tuner::logged_row* row) {
  return row != nullptr && row->is_timed() ? row->seconds : 0;
}

json::array rows_json(const std::vector<tuner::logged_row>& rows) {
  json::array list;
  for (const tuner::logged_row& row : rows) {
    json::object entry{{"row", row.row}, {"state", text(name_of(row.state))}};
    if (row.samples > 0) {
      entry["median_us"] = row.seconds * 1e6;
      entry["spread_us"] = row.mad * 1e6;
    }
    entry["samples"] = row.samples;
    if (!row.reason.empty()) entry["reason"] = row.reason;
    list.push_back(std::move(entry));
  }
  return list;
}

style look_of(const tuner::tuned_problem& problem) {
  if (problem.kind == tuner::outcome_kind::failed) return style::bad;
  return problem.kind == tuner::outcome_kind::tuned ? style::good : style::plain;
}

void print_failures(const std::vector<tuner::tuned_problem>& found) {
  table out({{"#", side::right}, {"failed row"}, {"how"}, {"what happened", side::left, true}});
  for (std::size_t n = 0; n < found.size(); ++n) {
    for (const tuner::logged_row& row : found[n].rows) {
      if (!tuner::is_failure(row.state)) continue;
      out.add({std::to_string(n + 1),
               {row.row, style::bad},
               std::string(name_of(row.state)),
               {row.reason, style::dim}});
    }
  }
  if (!out.empty()) print("\n" + out.text(terminal_width()));
}

void print_summary(const tuner::session_summary& all) {
  std::string line = fmt::format("\n{} problem{}: {} tuned, {} keep the default", all.problems,
                                 all.problems == 1 ? "" : "s", all.tuned, all.kept);
  if (all.disturbed > 0) {
    line += fmt::format(" ({} of them undecided: other programs took the machine)", all.disturbed);
  }
  if (all.failed > 0) line += fmt::format(", {} failed", all.failed);
  if (all.skipped > 0) line += fmt::format("; {} known from an earlier tune", all.skipped);
  if (all.unmeasured > 0) line += fmt::format("; {} left for want of time", all.unmeasured);
  if (all.failed_rows > 0) line += fmt::format("; {} candidate rows failed", all.failed_rows);
  print(line + fmt::format("; {} measuring.\n", duration_text(all.seconds)));
  if (all.problems == all.failed) return;
  print(fmt::format("Tuned over default: geometric mean {}, worst {:.3f}x, best {:.3f}x.\n",
                    styled(style::bold, fmt::format("{:.3f}x", all.mean_gain)), all.worst_gain,
                    all.best_gain));
}

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole >= 3600) return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
  if (whole >= 60) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return seconds < 9.5 ? fmt::format("{:.1f} s", seconds) : fmt::format("{} s", whole);
}

tune_progress::tune_progress(bool quiet, double budget_seconds)
    : quiet_(quiet), in_place_(has_colour(STDERR_FILENO)), budget_(budget_seconds) {}

tune_progress::~tune_progress() {
  erase();
}

double tune_progress::seconds_left() const {
  const double spent = std::chrono::duration<double>(clock::now() - begin_).count();
  double left = -1;
  if (measured_ > 0) {
    const double mean = seconds_measured_ / static_cast<double>(measured_);
    left = mean * static_cast<double>(total_ - index_);
  }
  if (budget_ > 0) left = left < 0 ? budget_ - spent : std::min(left, budget_ - spent);
  return budget_ > 0 ? std::max(left, 0.0) : left;
}

void tune_progress::begin(const tuner::planned_problem& problem, std::size_t index,
                          std::size_t total) {
  what_ = problem.text;
  index_ = index;
  total_ = total;
  if (quiet_ || in_place_) return;
  const double left = seconds_left();
  fmt::print(stderr, "[{}/{}] {}{}\n", index + 1, total, what_,
             left < 0 ? "" : fmt::format(" ({} left)", duration_text(left)));
}

void tune_progress::measure(std::string_view phase, const tuner::candidate& row) {
  if (quiet_ || !in_place_ || clock::now() - drawn_ < std::chrono::milliseconds(80)) return;
  drawn_ = clock::now();
  constexpr std::size_t cells = 20;
  const std::size_t full = total_ == 0 ? 0 : index_ * cells / total_;
  const double left = seconds_left();
  const std::string time = left < 0 ? "" : duration_text(left) + " left, ";
  erase();
  const std::string line = fmt::format("[{:=<{}}{: <{}}] {}/{} {}{} {}", "", full, "", cells - full,
                                       index_ + 1, total_, time, phase, row.name);
  fmt::print(stderr, "{}", line.substr(0, 110));
  std::fflush(stderr);
}

void tune_progress::end(const tuner::tuned_problem& found) {
  if (found.skipped) return;
  ++measured_;
  seconds_measured_ += found.seconds;
}

void tune_progress::erase() const {
  if (quiet_ || !in_place_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
}

json::object heading_json(const std::string& command, const device_facts& device,
                          const std::string& environment) {
  return {{"tessera", "tune"},          {"version", text(version)},
          {"device", text_of(device)},  {"device_class", text(device_class_of(device).view())},
          {"environment", environment}, {"command", command},
          {"date", utc_now()}};
}

json::object to_json(const tuner::planned_problem& planned) {
  return {{"op", planned.text.substr(0, planned.text.find(' '))},
          {"problem", planned.text},
          {"family", planned.key.family},
          {"identity", planned.key.identity},
          {"size", planned.key.size},
          {"device_class", planned.key.device_class},
          {"count", planned.count},
          {"problems", planned.problems},
          {"default_row", planned.default_row},
          {"predicted_us", planned.predicted_seconds * 1e6},
          {"eligible", planned.eligible}};
}

json::object to_json(const tuner::tuned_problem& tuned) {
  json::object fields = to_json(tuned.planned);
  fields["default_us"] = seconds_of(tuned.row_named(tuned.planned.default_row)) * 1e6;
  fields["row"] = tuned.row.empty() ? json::value(nullptr) : json::value(tuned.row);
  fields["median_us"] = seconds_of(tuned.row_named(tuned.row)) * 1e6;
  const tuner::logged_row* winner = tuned.row_named(tuned.row);
  fields["spread_us"] = winner == nullptr ? 0 : winner->mad * 1e6;
  fields["gain"] = tuned.gain;
  fields["hold_out_gain"] = tuned.hold_out_gain;
  fields["decision"] = text(name_of(tuned.kind));
  fields["reason"] = text(name_of(tuned.reason));
  fields["tie"] = is_tie(tuned);
  fields["seconds"] = tuned.seconds;
  fields["skipped"] = tuned.skipped;
  fields["disturbed"] = tuned.disturbed;
  fields["candidates"] = rows_json(tuned.rows);
  return fields;
}

json::object to_json(const tuner::session_summary& all) {
  return {{"problems", all.problems},
          {"tuned", all.tuned},
          {"default", all.kept},
          {"failed", all.failed},
          {"skipped", all.skipped},
          {"unmeasured", all.unmeasured},
          {"disturbed", all.disturbed},
          {"failed_rows", all.failed_rows},
          {"geometric_mean_gain", all.mean_gain},
          {"worst_gain", all.worst_gain},
          {"worst_problem", all.worst_problem},
          {"best_gain", all.best_gain},
          {"seconds", all.seconds}};
}

void print_plan(const std::vector<tuner::planned_problem>& planned,
                const tuner::measuring_rules& rules) {
  table out({{"#", side::right},
             {"calls", side::right},
             {"rows that fit", side::right},
             {"to measure", side::right},
             {"predicted ms", side::right},
             {"problem", side::left, true},
             {"default row", side::left, true}});
  double seconds = 0;
  for (std::size_t n = 0; n < planned.size(); ++n) {
    const tuner::planned_problem& problem = planned[n];
    if (!problem.known) seconds += expected_seconds(problem, rules);
    out.add({std::to_string(n + 1), std::to_string(problem.count), std::to_string(problem.eligible),
             problem.known ? cell("known", style::dim)
                           : cell(std::to_string(problem.candidates.size())),
             milliseconds(problem.predicted_seconds), problem.text, problem.default_row});
  }
  print(out.text(terminal_width()));
  print(fmt::format("\nNothing was measured. It would take about {}.\n", duration_text(seconds)));
}

void print_found(const std::vector<tuner::tuned_problem>& found,
                 const tuner::session_summary& all) {
  table out({{"#", side::right},
             {"calls", side::right},
             {"default ms", side::right},
             {"best ms", side::right},
             {"+-", side::right},
             {"gain", side::right},
             {"verdict"},
             {"problem", side::left, true},
             {"row", side::left, true}});
  for (std::size_t n = 0; n < found.size(); ++n) {
    const tuner::tuned_problem& problem = found[n];
    const double standard = seconds_of(problem.row_named(problem.planned.default_row));
    const tuner::logged_row* winner = problem.row_named(problem.row);
    const double best = seconds_of(winner);
    const bool tuned = problem.kind == tuner::outcome_kind::tuned;
    out.add({std::to_string(n + 1),
             std::to_string(problem.planned.count),
             standard > 0 ? milliseconds(standard) : "-",
             best > 0 ? milliseconds(best) : "-",
             best > 0 ? fmt::format("{:.1f}%", 100 * winner->mad / best) : "-",
             tuned ? cell(fmt::format("{:.2f}x", problem.hold_out_gain), style::good) : cell("-"),
             {verdict_of(problem), look_of(problem)},
             problem.planned.text,
             {problem.row, look_of(problem)}});
  }
  print(out.text(terminal_width()));
  print_failures(found);
  print_summary(all);
}

}  // namespace tessera::tool
