#include "measure.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "child.hpp"

namespace tessera::tuner {
namespace {

constexpr std::array<std::string_view, 8> state_names{"untried", "timed",   "abandoned", "wrong",
                                                      "crashed", "timeout", "refused",   "pruned"};

/// What a child of the gate reports.
enum gate_report : std::uint32_t { results_right, results_wrong, row_refused, single_run };

/// The reference row's results, in memory that the gate's children see. Empty if it failed or would
/// take too long.
shared_memory expected_results(tunable_problem& problem, const measuring_rules& rules) {
  const std::size_t row = problem.reference_row();
  if (problem.candidates()[row].predicted_seconds > rules.limit_seconds / 4) return {};
  shared_memory results(problem.result_bytes());
  bool done = false;
  const auto work = [&](const child_channel& parent) {
    if (!problem.prepare(row) || !problem.run(0)) return;
    problem.copy_results(results.bytes());
    parent.send(results_right);
  };
  const auto receive = [&](const child_message& message) {
    done = message.kind == results_right;
    return rules.limit_seconds;
  };
  const result<child_outcome> ended = run_in_child(work, receive, rules.limit_seconds);
  if (!ended || ended->end != child_end::finished || !done) return {};
  return results;
}

/// The child's part of the gate for one row.
void check_in_child(tunable_problem& problem, std::size_t row, std::span<const std::byte> expected,
                    const child_channel& parent) {
  status done = problem.prepare(row);
  if (done) done = problem.run(0);
  if (!done) return parent.send(row_refused, 0, 0, done.message());
  const std::string complaint = problem.complaint(expected);
  if (!complaint.empty()) return parent.send(results_wrong, 0, 0, complaint);
  parent.send(results_right);
  const result<double> seconds = problem.time(1, 1);
  if (!seconds) return parent.send(row_refused, 0, 0, seconds.message());
  parent.send(single_run, 0, *seconds);
}

result<measured_row> check_row(tunable_problem& problem, std::size_t row,
                               std::span<const std::byte> expected, const measuring_rules& rules) {
  measured_row found;
  found.row = row;
  const auto receive = [&](const child_message& message) {
    if (message.kind == results_wrong || message.kind == row_refused) {
      found.state = message.kind == results_wrong ? row_state::wrong : row_state::refused;
      found.reason = message.text;
    }
    if (message.kind == single_run) {
      found.first_seconds = message.value;
      found.state = row_state::timed;
    }
    return rules.limit_seconds;
  };
  result<child_outcome> ended = run_in_child(
      [&](const child_channel& parent) { check_in_child(problem, row, expected, parent); }, receive,
      rules.limit_seconds);
  if (!ended) return ended.failure();
  if (ended->end != child_end::finished) {
    found.state = ended->end == child_end::crashed ? row_state::crashed : row_state::timeout;
    found.reason = ended->text;
  }
  return found;
}

}  // namespace

std::string_view name_of(row_state state) noexcept {
  return state_names[static_cast<std::size_t>(state)];
}

row_state row_state_named(std::string_view name, bool& known) noexcept {
  const auto found = std::find(state_names.begin(), state_names.end(), name);
  known = found != state_names.end();
  return known ? static_cast<row_state>(found - state_names.begin()) : row_state::untried;
}

std::vector<std::size_t> shortlist(const tunable_problem& problem, std::size_t most,
                                   const std::vector<std::string>& extra) {
  const auto candidates = problem.candidates();
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const bool wanted = i < most || i == problem.default_row() ||
                        std::find(extra.begin(), extra.end(), candidates[i].name) != extra.end();
    if (wanted) rows.push_back(i);
  }
  return rows;
}

result<std::vector<measured_row>> check_rows(tunable_problem& problem,
                                             const std::vector<std::size_t>& rows,
                                             const measuring_rules& rules,
                                             const measuring_observer& observe) {
  const shared_memory expected = expected_results(problem, rules);
  std::vector<measured_row> checked;
  for (const std::size_t row : rows) {
    if (observe) observe("check", problem.candidates()[row]);
    result<measured_row> found = check_row(problem, row, expected.bytes(), rules);
    if (!found) return found.failure();
    checked.push_back(*std::move(found));
  }
  return checked;
}

bool is_disturbed(const measured_row& row, const measuring_rules& rules) noexcept {
  return row.seconds.size() < rules.least_clean && !row.disturbed.empty();
}

double least_seconds(const measured_row& row) noexcept {
  constexpr std::size_t enough = 2;
  double least = std::numeric_limits<double>::infinity();
  for (const double seconds : row.seconds) least = std::min(least, seconds);
  if (row.seconds.size() < enough) {
    for (const double seconds : row.at_least) least = std::min(least, seconds);
  }
  return row.seconds.empty() && row.at_least.empty() ? 0 : least;
}

std::vector<double> samples_of(const measured_row& row, const measuring_rules& rules) {
  std::vector<double> samples = row.seconds;
  if (is_disturbed(row, rules)) {
    samples.insert(samples.end(), row.disturbed.begin(), row.disturbed.end());
  }
  return samples;
}

std::vector<timed_row> timed_rows(const tunable_problem& problem,
                                  const std::vector<measured_row>& rows,
                                  const measuring_rules& rules) {
  std::vector<timed_row> list;
  for (const measured_row& measured : rows) {
    const candidate& row = problem.candidates()[measured.row];
    const bool counts = measured.state == row_state::timed;
    list.push_back({row.name,
                    counts ? statistics_of(samples_of(measured, rules)) : sample_statistics{},
                    row.resources});
  }
  return list;
}

}  // namespace tessera::tuner
