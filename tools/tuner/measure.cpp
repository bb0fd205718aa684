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

/// What a child of the gate reports; `index`: which of the rows. `row_goes_on`: a step of it is
/// done, the next one has a time limit of its own.
enum gate_report : std::uint32_t {
  row_begins,
  row_goes_on,
  results_wrong,
  row_refused,
  single_run,
};

/// The reference row's results, in memory that the gate's children see. Empty if it failed, would
/// take too long or is not what the definition says.
shared_memory expected_results(tunable_problem& problem, const measuring_rules& rules) {
  const std::size_t row = problem.reference_row();
  if (problem.candidates()[row].predicted_seconds > rules.limit_seconds / 4) return {};
  shared_memory results(problem.result_bytes());
  bool done = false;
  const auto work = [&](const child_channel& parent) {
    if (!problem.prepare(row) || !problem.run(0)) return;
    parent.send(row_goes_on);
    if (!problem.complaint({}).empty()) return;
    parent.send(row_goes_on);
    if (!problem.against_definition(false).empty()) return;
    problem.copy_results(results.bytes());
    parent.send(single_run);
  };
  const auto receive = [&](const child_message& message) {
    done = message.kind == single_run;
    return rules.limit_seconds;
  };
  const result<child_outcome> ended = run_in_child(work, receive, rules.limit_seconds);
  if (!ended || ended->end != child_end::finished || !done) return {};
  return results;
}

/// Some of the rows in a child process of theirs, up to the first that fails.
class gate {
 public:
  gate(tunable_problem& problem, const measuring_rules& rules, judges by)
      : problem_(problem), rules_(rules), by_(by), expected_(expected_results(problem, rules)) {}

  /// Rows [first, end) of `rows`; returns how far it came. A row that fails behind others, whatever
  /// they left in the process, has not failed: it is the first of the next child.
  result<std::size_t> check(std::vector<measured_row>& rows, std::size_t first, std::size_t end,
                            const measuring_observer& observe) {
    std::size_t now = first;
    const auto receive = [&](const child_message& message) {
      // A row may have written over what its process sends.
      if (message.index < first || message.index >= end) return rules_.limit_seconds;
      now = message.index;
      measured_row& row = rows[now];
      switch (message.kind) {
        case row_begins:
          if (observe) observe("check", problem_.candidates()[row.row]);
          break;
        case row_goes_on:
          break;
        case single_run:
          row.first_seconds = message.value;
          row.state = row_state::timed;
          break;
        default:
          row.state = message.kind == results_wrong ? row_state::wrong : row_state::refused;
          row.reason = message.text;
      }
      return rules_.limit_seconds;
    };
    const auto work = [&](const child_channel& parent) {
      for (std::size_t i = first; i < end; ++i) {
        if (!check_one(rows[i].row, static_cast<std::uint32_t>(i), parent)) return;
      }
    };
    const result<child_outcome> ended = run_in_child(work, receive, rules_.limit_seconds);
    if (!ended) return ended.failure();
    measured_row& last = rows[now];
    if (ended->end != child_end::finished) {
      last.state = ended->end == child_end::crashed ? row_state::crashed : row_state::timeout;
      last.reason = ended->text;
    }
    if (!is_failure(last.state) || now == first) return now + 1;
    last = {.row = last.row};
    return now;
  }

 private:
  /// The child's part; false if the row fails.
  bool check_one(std::size_t row, std::uint32_t index, const child_channel& parent) {
    parent.send(row_begins, index);
    status done = problem_.prepare(row);
    if (done) done = problem_.run(0);
    if (!done) return refuse(done, index, parent);
    parent.send(row_goes_on, index);
    const bool alone = expected_.bytes().empty();
    std::string complaint = problem_.complaint(expected_.bytes());
    if (complaint.empty() && (alone || by_ == judges::both)) {
      parent.send(row_goes_on, index);
      complaint = problem_.against_definition(alone);
    }
    if (!complaint.empty()) {
      parent.send(results_wrong, index, 0, complaint);
      return false;
    }
    parent.send(row_goes_on, index);
    const result<double> seconds = problem_.time(1, 1);
    if (!seconds) return refuse(seconds.failure(), index, parent);
    parent.send(single_run, index, *seconds);
    return true;
  }
  static bool refuse(const status& refusal, std::uint32_t index, const child_channel& parent) {
    parent.send(row_refused, index, 0, refusal.message());
    return false;
  }

  tunable_problem& problem_;
  const measuring_rules& rules_;
  judges by_;
  shared_memory expected_;
};

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
                                             const measuring_observer& observe, judges by) {
  std::vector<measured_row> checked;
  for (const std::size_t row : rows) checked.push_back({.row = row});
  gate lets_in(problem, rules, by);
  for (std::size_t first = 0; first < checked.size();) {
    const std::size_t end = problem.shares_process() ? checked.size() : first + 1;
    const result<std::size_t> next = lets_in.check(checked, first, end, observe);
    if (!next) return next.failure();
    first = *next;
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
