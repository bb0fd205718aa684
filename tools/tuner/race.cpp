#include "race.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include "bench/support/tenants.hpp"
#include "child.hpp"
#include "tests/support/random.hpp"

namespace tessera::tuner {
namespace {

enum race_report : std::uint32_t {
  row_begins,
  row_sample,
  row_disturbed,
  row_at_least,
  row_dropped,
  row_refused,
};

constexpr std::size_t least_rounds_to_abandon = 2;
constexpr double warm_up_seconds = 0.02;
constexpr double most_patience = 4;         // times the seconds of a race
constexpr double most_seconds_again = 0.2;  // longer samples are not taken again

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::size_t rounds_of(const measured_row& row) {
  return row.seconds.size() + row.disturbed.size();
}

sample_statistics statistics(const measured_row& row, const measuring_rules& rules) {
  return statistics_of(samples_of(row, rules));
}

/// Index into `rows` of the problem's default; no_row if it is not there or failed.
std::size_t default_in(const tunable_problem& problem, const std::vector<measured_row>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].row == problem.default_row() && rows[i].state == row_state::timed) return i;
  }
  return no_row;
}

/// Calls per sample, the same for every row, so that samples are comparable: by the fastest row.
std::size_t repeats_of(const std::vector<measured_row>& rows, double sample_seconds) {
  double least = sample_seconds;
  for (const std::size_t i : running(rows)) least = std::min(least, rows[i].first_seconds);
  const double repeats = std::ceil(sample_seconds / std::max(least, 1e-7));
  return static_cast<std::size_t>(std::clamp(repeats, 1.0, 10000.0));
}

/// The race as the child runs it: the same samples arrive at the parent.
class runner {
 public:
  runner(tunable_problem& problem, std::vector<measured_row> rows, const measuring_rules& rules,
         const child_channel& parent)
      : problem_(problem),
        rows_(std::move(rows)),
        rules_(rules),
        parent_(parent),
        default_(default_in(problem, rows_)),
        repeats_(repeats_of(rows_, rules.sample_seconds)) {}

  void run() {
    support::random_source random(rules_.seed * 0x9E3779B97F4A7C15u + rounds_done());
    const double begin = now();
    while (rounds_done() < rules_.most_rounds && !is_over(now() - begin)) {
      std::vector<std::size_t> order = running(rows_);
      if (order.empty()) return;
      for (std::size_t i = order.size(); i > 1; --i) {
        std::swap(order[i - 1],
                  order[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
      }
      for (const std::size_t row : order) sample(row);
      drop_slow();
    }
  }

 private:
  /// A disturbed machine gets more time for undisturbed samples, but not without end.
  bool is_over(double elapsed) const {
    if (rounds_done() < rules_.least_rounds) return false;
    if (elapsed > most_patience * rules_.race_seconds) return true;
    for (const std::size_t i : running(rows_)) {
      if (rows_[i].seconds.size() < rules_.least_rounds) return false;
    }
    return elapsed > rules_.race_seconds || is_settled(rows_, default_, rules_);
  }

  /// Rounds that the row with the fewest samples has behind it.
  std::size_t rounds_done() const {
    std::size_t least = rules_.most_rounds;
    for (const std::size_t i : running(rows_)) least = std::min(least, rounds_of(rows_[i]));
    return least;
  }

  /// One sample of a row. Where other programs took a part of it, it is taken again a few times;
  /// the last one then counts as disturbed.
  void sample(std::size_t row) {
    const auto index = static_cast<std::uint32_t>(row);
    parent_.send(row_begins, index);
    status done = problem_.prepare(rows_[row].row);
    // First touch of code, sleeping threads: as large as a short call, nothing beside a long one.
    if (done && rows_[row].first_seconds < warm_up_seconds) done = problem_.run(round_++);
    bool clean = false;
    double seconds = 0;
    double taken_by_others = 0;
    for (std::size_t attempt = 0; done && !clean && attempt < rules_.most_attempts; ++attempt) {
      const bench::tenant_watch others;
      const double lost = others.lost_seconds();
      const result<double> taken = problem_.time(round_, repeats_);
      taken_by_others = problem_.shares_processor() ? others.lost_seconds() - lost : 0;
      clean = taken_by_others <= rules_.lost_share * (taken ? *taken : 0);
      round_ += repeats_;
      done = taken.failure();
      if (taken) seconds = *taken / static_cast<double>(repeats_);
      if (seconds > most_seconds_again) break;
    }
    if (!done) {
      rows_[row].state = row_state::refused;
      return parent_.send(row_refused, index, 0, done.message());
    }
    if (clean) {
      rows_[row].seconds.push_back(seconds);
      return parent_.send(row_sample, index, seconds);
    }
    const double least = seconds - taken_by_others / static_cast<double>(repeats_);
    rows_[row].disturbed.push_back(seconds);
    rows_[row].at_least.push_back(std::max(0.0, least));
    parent_.send(row_disturbed, index, seconds);
    parent_.send(row_at_least, index, rows_[row].at_least.back());
  }

  void drop_slow() {
    const std::vector<std::size_t> before = running(rows_);
    abandon_slow(rows_, default_, rules_);
    for (const std::size_t i : before) {
      if (rows_[i].state == row_state::abandoned) {
        parent_.send(row_dropped, static_cast<std::uint32_t>(i));
      }
    }
  }

  tunable_problem& problem_;
  std::vector<measured_row> rows_;
  const measuring_rules& rules_;
  const child_channel& parent_;
  std::size_t default_;
  std::size_t repeats_;
  std::size_t round_ = 2;  // 0 and 1 were the gate's
};

/// Takes over what the child reports; remembers the row that is running.
class listener {
 public:
  listener(const tunable_problem& problem, std::vector<measured_row>& rows,
           const measuring_rules& rules, const measuring_observer& observe)
      : problem_(problem), rows_(rows), rules_(rules), observe_(observe) {}

  double operator()(const child_message& message) {
    if (message.index >= rows_.size()) return rules_.limit_seconds;
    measured_row& row = rows_[message.index];
    if (message.kind == row_begins) {
      running_ = message.index;
      if (observe_) observe_("time", problem_.candidates()[row.row]);
    }
    if (message.kind == row_sample) row.seconds.push_back(message.value);
    if (message.kind == row_disturbed) row.disturbed.push_back(message.value);
    if (message.kind == row_at_least) row.at_least.push_back(message.value);
    if (message.kind == row_dropped) row.state = row_state::abandoned;
    if (message.kind == row_refused) {
      row.state = row_state::refused;
      row.reason = message.text;
    }
    return rules_.limit_seconds;
  }

  /// The row that was running when the child ended; no_row if none had begun.
  std::size_t culprit() const noexcept { return running_; }

 private:
  const tunable_problem& problem_;
  std::vector<measured_row>& rows_;
  const measuring_rules& rules_;
  const measuring_observer& observe_;
  std::size_t running_ = no_row;
};

}  // namespace

std::vector<std::size_t> running(const std::vector<measured_row>& rows) {
  std::vector<std::size_t> list;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].state == row_state::timed) list.push_back(i);
  }
  return list;
}

std::size_t leader_of(const std::vector<measured_row>& rows, const measuring_rules& rules) {
  std::size_t leader = no_row;
  double least = 0;
  for (const std::size_t i : running(rows)) {
    if (rounds_of(rows[i]) == 0) continue;
    const double median = statistics(rows[i], rules).median;
    if (leader != no_row && median >= least) continue;
    leader = i;
    least = median;
  }
  return leader;
}

void abandon_slow(std::vector<measured_row>& rows, std::size_t default_row,
                  const measuring_rules& rules) {
  const std::size_t leader = leader_of(rows, rules);
  if (leader == no_row) return;
  const sample_statistics best = statistics(rows[leader], rules);
  for (const std::size_t i : running(rows)) {
    if (i == leader || i == default_row || rounds_of(rows[i]) < least_rounds_to_abandon) continue;
    // Its fastest round against the leader's median: neither one slow round nor other programs
    // must end a row.
    if (least_seconds(rows[i]) > rules.abandon_factor * best.median) {
      rows[i].state = row_state::abandoned;
    }
  }
}

bool is_settled(const std::vector<measured_row>& rows, std::size_t default_row,
                const measuring_rules& rules) {
  const std::size_t leader = leader_of(rows, rules);
  if (leader == no_row) return false;
  if (running(rows).size() == 1) return true;
  const sample_statistics best = statistics(rows[leader], rules);
  for (const std::size_t i : running(rows)) {
    const sample_statistics time = statistics(rows[i], rules);
    const double error = std::hypot(time.error(), best.error());
    const bool known = error <= rules.settled * best.median;
    const bool far = i != default_row && time.median - best.median > 6 * error &&
                     time.median > rules.deciding.min_gain * best.median;
    if (!known && !far) return false;
  }
  return true;
}

status time_rows(tunable_problem& problem, std::vector<measured_row>& rows,
                 const measuring_rules& rules, const measuring_observer& observe) {
  // Every end that is not the race's own costs one row, so this ends.
  while (!running(rows).empty()) {
    listener listening(problem, rows, rules, observe);
    const std::vector<measured_row> start = rows;
    const auto work = [&](const child_channel& parent) {
      runner(problem, start, rules, parent).run();
    };
    const result<child_outcome> ended =
        run_in_child(work, std::ref(listening), rules.limit_seconds);
    if (!ended) return ended.failure();
    if (ended->end == child_end::finished) return {};
    const std::size_t culprit =
        listening.culprit() != no_row ? listening.culprit() : running(rows).front();
    rows[culprit].state =
        ended->end == child_end::crashed ? row_state::crashed : row_state::timeout;
    rows[culprit].reason = ended->text;
  }
  return {};
}

}  // namespace tessera::tuner
