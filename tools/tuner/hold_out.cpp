// What is to replace the default, once more on other inputs: is it right by the definition too, and
// is it faster again?
#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "tune.hpp"

namespace tessera::tuner {
namespace {

std::size_t index_of(const tunable_problem& problem, std::string_view name) {
  const auto rows = problem.candidates();
  return static_cast<std::size_t>(
      std::find_if(rows.begin(), rows.end(),
                   [&](const candidate& row) { return row.name == name; }) -
      rows.begin());
}

/// What is known now of the row that was to be used: it failed.
void note_failure(tuned_problem& found, const measured_row& failed) {
  for (logged_row& row : found.rows) {
    if (row.row != found.row) continue;
    row.state = failed.state;
    row.reason = failed.reason;
  }
}

/// Goes on to the fastest of the rows that have not failed; false if there is none.
bool take_next(tuned_problem& found) {
  found.order_rows();
  const bool is_there = !found.rows.empty() && found.rows.front().is_timed();
  found.row = is_there ? found.rows.front().row : std::string();
  return is_there;
}

/// Lets the gate look at the row to be used, where the definition speaks too. True if it is right;
/// notes its failure otherwise.
result<bool> confirm(tunable_problem& problem, tuned_problem& found, const measuring_rules& rules,
                     const session_events& events) {
  const result<std::vector<measured_row>> checked =
      check_rows(problem, {index_of(problem, found.row)}, rules, events.measures, judges::both);
  if (!checked) return checked.failure();
  const measured_row& row = checked->front();
  if (is_failure(row.state)) note_failure(found, row);
  return !is_failure(row.state);
}

}  // namespace

/// Nothing replaces the default that only other rows have found to be right. Where the default
/// failed, whatever is right does, the fastest first.
status session::hold_out(tunable_problem& problem, tuned_problem& found,
                         const std::vector<measured_row>& measured, const session_events& events) {
  measuring_rules rules = options_.measuring;
  rules.seed += 1;
  problem.drop_inputs();
  if (status done = problem.make_inputs(rules.seed); !done) return done;
  const bool default_failed = found.reason == decision_reason::default_failed;
  while (true) {
    const result<bool> right = confirm(problem, found, rules, events);
    if (!right) return right.failure();
    if (*right) break;
    if (!default_failed) {
      found.gain = found.hold_out_gain = 1;
      found.keep_default(decision_reason::not_repeated);
      return {};
    }
    if (!take_next(found)) {
      found.reason = decision_reason::nothing_timed;
      found.kind = outcome_kind::failed;
      return {};
    }
    const std::size_t next = index_of(problem, found.row);
    for (const measured_row& row : measured) {
      found.disturbed = found.disturbed || (row.row == next && is_disturbed(row, rules));
    }
  }
  return default_failed ? status{} : time_again(problem, found, rules, events);
}

/// Runs winner and default once more. What was picked as the fastest of many was also the luckiest;
/// only what is faster again is kept.
status session::time_again(tunable_problem& problem, tuned_problem& found,
                           const measuring_rules& rules, const session_events& events) {
  std::vector<measured_row> pair;
  for (std::size_t i = 0; i < problem.candidates().size(); ++i) {
    const std::string& name = problem.candidates()[i].name;
    if (name != found.row && i != problem.default_row()) continue;
    measured_row row{.row = i, .state = row_state::timed};
    row.first_seconds = found.row_named(name)->seconds;
    pair.push_back(std::move(row));
  }
  if (status done = time_rows(problem, pair, rules, events.measures); !done) return done;
  const std::size_t standard = pair.front().row == problem.default_row() ? 0 : 1;
  const measured_row& winner = pair[1 - standard];
  found.hold_out_gain = 0;
  if (winner.state == row_state::timed && pair[standard].state == row_state::timed) {
    found.hold_out_gain =
        median_of(samples_of(pair[standard], rules)) / median_of(samples_of(winner, rules));
  }
  for (const measured_row& row : pair) {
    found.disturbed = found.disturbed || is_disturbed(row, rules);
  }
  if (found.hold_out_gain >= options_.hold_out_gain) return {};
  if (is_failure(winner.state)) note_failure(found, winner);
  found.keep_default(decision_reason::not_repeated);
  return {};
}

}  // namespace tessera::tuner
