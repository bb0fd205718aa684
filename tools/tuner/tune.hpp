// A tuning session: problems in, measured rows out. Each problem is stored as soon as it is
// decided, so that a session that ends early loses at most the problem it was at.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/lookup/record.hpp>
#include <tessera/lookup/table.hpp>
#include <tessera/spec/status.hpp>

#include "measure.hpp"
#include "measurement_log.hpp"
#include "statistics.hpp"
#include "tunable_problem.hpp"

namespace tessera::tuner {

/// A problem and how often it is asked.
struct weighted_problem {
  std::string text;
  std::int64_t count = 1;
};

using problem_opener =
    std::function<result<std::unique_ptr<tunable_problem>>(std::string_view, const conditions&)>;

struct session_options {
  problem_opener open = &open_problem;
  std::string table;  ///< the lookup table that winners are appended to; empty: nothing is stored
  conditions where{};
  measuring_rules measuring{};
  double budget_seconds = 0;      ///< no further problem begins after this; 0: no limit
  bool accept_disturbed = false;  ///< decide also where other programs took much of the time
  bool retune = false;            ///< measure also what the log has for this code version
  double hold_out_gain = 1.0;     ///< a winner that gains less when both rows run again is dropped
  std::string environment;        ///< recorded with every line
};

/// Problems with the same key, to be measured once.
struct planned_problem {
  std::string text;          ///< the problem that takes most time of those with the key
  std::int64_t count = 1;    ///< calls of all of them
  std::size_t problems = 1;  ///< how many there are
  problem_key key;
  std::string default_row{};
  std::vector<candidate> candidates{};  ///< those that would be measured
  std::size_t eligible = 0;             ///< rows that fit
  double predicted_seconds = 0;         ///< of one call of `text` with the default row
  bool known = false;                   ///< the log has the answer
};

enum class outcome_kind : std::uint8_t {
  tuned,          ///< another row than the default is to be used
  default_stays,  ///< measured: no row is worth a change
  failed,         ///< no row could be timed
};

/// "tuned", "default", "failed".
std::string_view name_of(outcome_kind kind) noexcept;

/// What was found for one key.
struct tuned_problem {
  planned_problem planned;
  outcome_kind kind = outcome_kind::failed;
  decision_reason reason = decision_reason::nothing_timed;
  std::vector<logged_row> rows;  ///< every row that was tried, fastest first, failures last
  std::string row;               ///< to be used; empty if failed
  std::string runner_up;
  double gain = 1;           ///< default over winner, as decided
  double hold_out_gain = 1;  ///< the same when both ran again on other inputs
  double seconds = 0;        ///< spent on it
  bool skipped = false;      ///< from the log: nothing was measured
  bool disturbed = false;    ///< winner or default have too few undisturbed samples

  const logged_row* row_named(std::string_view name) const noexcept;

  /// Puts the rows in their order and finds the runner-up: the fastest besides `row`.
  void order_rows();
  /// Whatever won does not replace the default.
  void keep_default(decision_reason why);
};

/// What a session does while it works; every function may be empty.
struct session_events {
  std::function<void(const planned_problem&, std::size_t index, std::size_t total)> begins{};
  std::function<void(std::string_view phase, const candidate&)> measures{};
  std::function<void(const tuned_problem&)> ends{};
};

/// Gains over all problems of a session, by hold-out measurements; 1 where the default stays.
struct session_summary {
  std::size_t problems = 0, tuned = 0, kept = 0, failed = 0, skipped = 0, unmeasured = 0;
  std::size_t disturbed = 0;    ///< problems for which nothing was decided
  std::size_t failed_rows = 0;  ///< wrong, crashed, timeout, refused
  double mean_gain = 1;         ///< geometric mean
  double worst_gain = 1, best_gain = 1;
  std::string worst_problem;
  double seconds = 0;
};

class session {
 public:
  explicit session(session_options options);

  /// Groups problems by key, most time first. Refuses a problem that cannot be opened, with its
  /// number in the list.
  result<std::vector<planned_problem>> plan(const std::vector<weighted_problem>& problems) const;

  /// Measures one problem, or takes it from the log; stores what was found.
  result<tuned_problem> tune(const planned_problem& planned, const session_events& events = {});

  /// All of them while the budget lasts.
  result<std::vector<tuned_problem>> run(const std::vector<planned_problem>& planned,
                                         const session_events& events = {});

  const session_options& options() const noexcept { return options_; }
  const measurement_log& log() const noexcept { return log_; }

 private:
  tuned_problem from_log(const planned_problem& planned) const;
  result<tuned_problem> measure(tunable_problem& problem, const planned_problem& planned,
                                const session_events& events);
  status hold_out(tunable_problem& problem, tuned_problem& found,
                  const std::vector<measured_row>& measured, const session_events& events);
  status time_again(tunable_problem& problem, tuned_problem& found, const measuring_rules& rules,
                    const session_events& events);
  status store(const tuned_problem& found);
  lookup_record record_of(const tuned_problem& found) const;
  std::vector<std::string> hints_for(const problem_key& key) const;

  session_options options_;
  measurement_log log_;
  lookup_table user_;
};

session_summary summary_of(const std::vector<tuned_problem>& found, std::size_t planned);

}  // namespace tessera::tuner
