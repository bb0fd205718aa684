#include "tune.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <utility>

#include <tessera/lookup/store.hpp>

#include "race.hpp"

namespace tessera::tuner {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double total_seconds(const planned_problem& problem) {
  return problem.predicted_seconds * static_cast<double>(problem.count);
}

/// Timed rows first, by time; then the others in the order of their names.
bool comes_first(const logged_row& a, const logged_row& b) {
  if (a.is_timed() != b.is_timed()) return a.is_timed();
  if (a.is_timed() && a.seconds != b.seconds) return a.seconds < b.seconds;
  return a.row < b.row;
}

logged_row logged(const tunable_problem& problem, const measured_row& timed,
                  const measuring_rules& rules) {
  const candidate& row = problem.candidates()[timed.row];
  const sample_statistics time = statistics_of(samples_of(timed, rules));
  const bool measured = time.count > 0;
  return {.row = row.name,
          .state = timed.state,
          .reason = timed.reason,
          .seconds = measured ? time.median : std::max(row.predicted_seconds, 1e-9),
          .mad = time.mad,
          .samples = static_cast<std::int64_t>(time.count)};
}

}  // namespace

std::string_view name_of(outcome_kind kind) noexcept {
  switch (kind) {
    case outcome_kind::tuned:
      return "tuned";
    case outcome_kind::default_stays:
      return "default";
    case outcome_kind::failed:
      return "failed";
  }
  return "invalid";
}

void tuned_problem::order_rows() {
  std::sort(rows.begin(), rows.end(), comes_first);
  const auto second = std::find_if(rows.begin(), rows.end(), [&](const logged_row& logged) {
    return logged.state == row_state::timed && logged.samples > 0 && logged.row != row;
  });
  runner_up = second == rows.end() ? std::string() : second->row;
}

void tuned_problem::keep_default(decision_reason why) {
  reason = why;
  if (kind != outcome_kind::tuned) return;
  row = planned.default_row;
  kind = outcome_kind::default_stays;
}

const logged_row* tuned_problem::row_named(std::string_view name) const noexcept {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const logged_row& logged) { return logged.row == name; });
  return found == rows.end() ? nullptr : &*found;
}

session::session(session_options options) : options_(std::move(options)), log_(options_.table) {
  if (!options_.table.empty()) user_ = read_tables(std::array{options_.table});
}

/// Rows that a table names for the key, for whatever version of the code: worth trying.
std::vector<std::string> session::hints_for(const problem_key& key) const {
  const lookup_record* record =
      user_.exact(key.family, key.device_class, key.identity, key.size, key.code_version);
  if (record == nullptr) return {};
  return {record->row, record->runner_up};
}

result<std::vector<planned_problem>> session::plan(
    const std::vector<weighted_problem>& problems) const {
  std::map<std::string, planned_problem> by_key;
  for (std::size_t n = 0; n < problems.size(); ++n) {
    const weighted_problem& weighted = problems[n];
    const auto opened = options_.open(weighted.text, options_.where);
    if (!opened) {
      return status(opened.code(), "problem " + std::to_string(n + 1) + " of " +
                                       std::to_string(problems.size()) + ": " + opened.message());
    }
    const tunable_problem& problem = **opened;
    const problem_key& key = problem.key();
    planned_problem planned{.text = problem.text(), .count = weighted.count, .key = key};
    planned.eligible = problem.candidates().size();
    planned.default_row = problem.candidates()[problem.default_row()].name;
    planned.predicted_seconds = problem.candidates()[problem.default_row()].predicted_seconds;
    const logged_problem* logged = log_.find(key);
    planned.known = logged != nullptr && !logged->winner.empty() && !options_.retune;
    for (const std::size_t row :
         shortlist(problem, options_.measuring.most_candidates, hints_for(key))) {
      planned.candidates.push_back(problem.candidates()[row]);
      planned.known = planned.known && logged->find(planned.candidates.back().name) != nullptr;
    }
    std::string text = key.family + key.identity + '\t' + key.size;
    const auto [place, fresh] = by_key.try_emplace(std::move(text), planned);
    if (fresh) continue;
    planned.count += place->second.count;
    planned.problems += place->second.problems;
    const double before = total_seconds(place->second) / static_cast<double>(place->second.count);
    const bool heavier = planned.predicted_seconds * static_cast<double>(weighted.count) > before;
    if (!heavier) planned.text = place->second.text;
    if (!heavier) planned.predicted_seconds = place->second.predicted_seconds;
    place->second = std::move(planned);
  }
  std::vector<planned_problem> list;
  for (auto& [text, planned] : by_key) list.push_back(std::move(planned));
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) {
    return total_seconds(a) > total_seconds(b);
  });
  return list;
}

tuned_problem session::from_log(const planned_problem& planned) const {
  const logged_problem& logged = *log_.find(planned.key);
  tuned_problem found;
  found.planned = planned;
  found.rows = logged.rows;
  found.row = logged.winner;
  found.order_rows();
  found.reason = decision_reason_named(logged.reason);
  found.kind = found.row == logged.default_row ? outcome_kind::default_stays : outcome_kind::tuned;
  const logged_row* winner = logged.find(logged.winner);
  const logged_row* standard = logged.find(logged.default_row);
  if (winner != nullptr && standard != nullptr && standard->is_timed()) {
    found.gain = found.hold_out_gain = standard->seconds / winner->seconds;
  }
  found.skipped = true;
  return found;
}

result<tuned_problem> session::tune(const planned_problem& planned, const session_events& events) {
  if (planned.known) return from_log(planned);
  auto opened = options_.open(planned.text, options_.where);
  if (!opened) return opened.failure();
  const double begin = now();
  result<tuned_problem> found = measure(**opened, planned, events);
  if (!found) return found;
  found->seconds = now() - begin;
  if (status done = store(*found); !done) return done;
  return found;
}

result<tuned_problem> session::measure(tunable_problem& problem, const planned_problem& planned,
                                       const session_events& events) {
  const measuring_rules& rules = options_.measuring;
  tuned_problem found;
  found.planned = planned;
  const logged_problem* earlier = options_.retune ? nullptr : log_.find(planned.key);
  std::vector<std::size_t> rows;
  for (const std::size_t row : shortlist(problem, rules.most_candidates, hints_for(planned.key))) {
    const logged_row* known =
        earlier == nullptr ? nullptr : earlier->find(problem.candidates()[row].name);
    const bool bad = known != nullptr && is_failure(known->state);
    if (bad) found.rows.push_back(*known);  // with the same code it would fail again
    if (!bad) rows.push_back(row);
  }
  if (status done = problem.make_inputs(rules.seed); !done) return done;
  result<std::vector<measured_row>> measured = check_rows(problem, rows, rules, events.measures);
  if (!measured) return measured.failure();
  if (status done = time_rows(problem, *measured, rules, events.measures); !done) return done;

  const std::vector<timed_row> timed = timed_rows(problem, *measured, rules);
  std::size_t standard = no_row;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == problem.default_row()) standard = i;
    found.rows.push_back(logged(problem, (*measured)[i], rules));
  }
  const decision choice = decide(timed, standard, rules.deciding);
  if (choice.winner != no_row) found.row = timed[choice.winner].name;
  found.reason = choice.reason;
  found.gain = found.hold_out_gain = choice.gain;
  found.kind = choice.winner == no_row     ? outcome_kind::failed
               : choice.winner == standard ? outcome_kind::default_stays
                                           : outcome_kind::tuned;
  for (const std::size_t row : {choice.winner, standard}) {
    found.disturbed = found.disturbed || (row != no_row && is_disturbed((*measured)[row], rules));
  }
  // So does a row of which other programs left open whether it is faster.
  for (const std::size_t row : running(*measured)) {
    const measured_row& other = (*measured)[row];
    found.disturbed = found.disturbed || (choice.winner != no_row && is_disturbed(other, rules) &&
                                          least_seconds(other) < timed[choice.winner].time.median);
  }
  found.order_rows();
  if (found.kind == outcome_kind::tuned) {
    if (status done = hold_out(problem, found, *measured, events); !done) return done;
  }
  if (found.disturbed && !options_.accept_disturbed) {
    found.keep_default(decision_reason::disturbed);
  }
  found.order_rows();
  problem.drop_inputs();
  return found;
}

lookup_record session::record_of(const tuned_problem& found) const {
  const problem_key& key = found.planned.key;
  lookup_record record;
  record.family = key.family;
  record.semantic_version = key.semantic_version;
  record.code_version = key.code_version;
  record.device_class = key.device_class;
  record.identity = key.identity;
  record.size = key.size;
  record.row = found.row;
  if (const logged_row* row = found.row_named(found.row)) {
    record.median_us = row->seconds * 1e6;
    record.spread_us = row->mad * 1e6;
    record.samples = row->samples;
  }
  record.default_row = found.planned.default_row;
  const logged_row* standard = found.row_named(record.default_row);
  if (standard != nullptr && standard->is_timed()) record.default_us = standard->seconds * 1e6;
  if (const logged_row* second = found.row_named(found.runner_up)) {
    record.runner_up = second->row;
    record.runner_up_us = second->seconds * 1e6;
  }
  record.mode = "eager cold";
  record.source = "tune";
  record.environment = options_.environment;
  record.date = utc_now();
  return record;
}

/// Every measurement goes to the log. The table gets a line where the default is to be replaced, or
/// where it must take back an older line of the same code.
status session::store(const tuned_problem& found) {
  lookup_record record = record_of(found);
  const problem_key& key = found.planned.key;
  const bool decided = found.reason != decision_reason::disturbed;
  std::vector<logged_row> rows = found.rows;
  if (!decided) {
    // Disturbed times are no evidence, failures are; without a decision the problem is measured
    // again next time.
    record.row.clear();
    std::erase_if(rows, [](const logged_row& row) { return !is_failure(row.state); });
  }
  if (status done = log_.append(key, rows, record, name_of(found.reason)); !done) return done;
  if (options_.table.empty() || !decided || found.kind == outcome_kind::failed) return {};
  const lookup_record* old =
      user_.exact(key.family, key.device_class, key.identity, key.size, key.code_version);
  const bool replaces =
      old != nullptr && old->code_version == key.code_version && old->row != found.row;
  if (found.kind != outcome_kind::tuned && !replaces) return {};
  return append_records(options_.table, std::array{record});
}

result<std::vector<tuned_problem>> session::run(const std::vector<planned_problem>& planned,
                                                const session_events& events) {
  std::vector<tuned_problem> all;
  double spent = 0;
  for (std::size_t n = 0; n < planned.size(); ++n) {
    const bool over = options_.budget_seconds > 0 && spent >= options_.budget_seconds;
    if (over && !planned[n].known) continue;
    if (events.begins) events.begins(planned[n], n, planned.size());
    result<tuned_problem> found = tune(planned[n], events);
    if (!found) return found.failure();
    spent += found->seconds;
    all.push_back(*std::move(found));
    if (events.ends) events.ends(all.back());
  }
  return all;
}

session_summary summary_of(const std::vector<tuned_problem>& found, std::size_t planned) {
  session_summary all;
  std::vector<double> gains;
  for (const tuned_problem& problem : found) {
    all.tuned += problem.kind == outcome_kind::tuned ? 1 : 0;
    all.kept += problem.kind == outcome_kind::default_stays ? 1 : 0;
    all.failed += problem.kind == outcome_kind::failed ? 1 : 0;
    all.skipped += problem.skipped ? 1 : 0;
    all.disturbed += problem.reason == decision_reason::disturbed ? 1 : 0;
    all.seconds += problem.seconds;
    for (const logged_row& row : problem.rows) all.failed_rows += is_failure(row.state) ? 1 : 0;
    if (problem.kind == outcome_kind::failed) continue;
    const double gain = problem.kind == outcome_kind::tuned ? problem.hold_out_gain : 1;
    if (gains.empty() || gain < all.worst_gain) {
      all.worst_gain = gain;
      all.worst_problem = problem.planned.text;
    }
    all.best_gain = gains.empty() ? gain : std::max(all.best_gain, gain);
    gains.push_back(gain);
  }
  all.problems = found.size();
  all.unmeasured = planned - found.size();
  all.mean_gain = geometric_mean(gains);
  return all;
}

}  // namespace tessera::tuner
