#include "cover.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tessera::tuner {
namespace {

/// Sums of the same numbers in another order must not decide.
constexpr double rounding = 1e-12;

/// What a problem without a row counts: more than any allowed time, but finite, so that savings can
/// be added up.
double penalty_of(const cover_task& task, double allowed) {
  double most = allowed;
  for (std::size_t p = 0; p < task.seconds.size(); ++p) {
    for (const double seconds : task.seconds[p]) {
      if (std::isfinite(seconds)) most = std::max(most, task.weights[p] * seconds);
    }
  }
  return 2 * most + 1;
}

std::size_t row_count(const cover_task& task) {
  return task.seconds.empty() ? 0 : task.seconds.front().size();
}

std::vector<std::size_t> all_rows(const cover_task& task) {
  std::vector<std::size_t> rows(row_count(task));
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  return rows;
}

/// True if row b is as fast as row a for every problem and to be preferred: a is never needed.
bool dominates(const cover_task& task, std::size_t b, std::size_t a) {
  bool faster_somewhere = false;
  for (const auto& times : task.seconds) {
    if (times[b] > times[a]) return false;
    faster_somewhere = faster_somewhere || times[b] < times[a];
  }
  const double cost_a = task.costs.empty() ? 0 : task.costs[a];
  const double cost_b = task.costs.empty() ? 0 : task.costs[b];
  return faster_somewhere || cost_b < cost_a || (cost_b == cost_a && b < a);
}

/// The search: sets of exactly `size` rows, by the savings of adding rows. Savings only shrink
/// while a set grows, so the sum of the largest savings bounds what the remaining rows can do.
class search {
 public:
  search(const cover_task& task, double allowed)
      : task_(task), allowed_(allowed), penalty_(penalty_of(task, allowed)) {
    for (std::size_t a = 0; a < row_count(task); ++a) {
      bool needed = true;
      for (std::size_t b = 0; b < row_count(task) && needed; ++b) {
        needed = b == a || !dominates(task, b, a);
      }
      if (needed) rows_.push_back(a);
    }
  }

  /// Looks for the best set of `size` rows. False if the nodes ran out.
  bool run(std::size_t size) {
    const std::vector<double> nothing(task_.weights.size(), penalty_);
    return descend(nothing, rows_, size);
  }

  bool found() const noexcept { return !best_.empty(); }
  std::size_t nodes() const noexcept { return nodes_; }
  std::size_t candidates() const noexcept { return rows_.size(); }
  std::vector<std::size_t> best() const {
    std::vector<std::size_t> rows = best_;
    std::sort(rows.begin(), rows.end());
    return rows;
  }

 private:
  struct option {
    std::size_t row;
    double saving;
  };

  double served(std::size_t problem, std::size_t row) const {
    const double seconds = task_.seconds[problem][row];
    return std::isfinite(seconds) ? task_.weights[problem] * seconds : penalty_;
  }

  double cost_of(const std::vector<std::size_t>& rows) const {
    double cost = 0;
    for (const std::size_t row : rows) cost += task_.costs.empty() ? 0 : task_.costs[row];
    return cost;
  }

  void keep_if_better(double total) {
    if (total > allowed_ * (1 + rounding)) return;
    const double cost = cost_of(chosen_);
    const bool faster = total < best_total_ * (1 - rounding);
    const bool as_fast = total <= best_total_ * (1 + rounding);
    if (!found() || faster || (as_fast && cost < best_cost_)) {
      best_ = chosen_;
      best_total_ = total;
      best_cost_ = cost;
    }
  }

  /// What a total must not exceed to be of interest.
  double limit() const {
    return (found() ? std::min(allowed_, best_total_) : allowed_) * (1 + rounding);
  }

  /// `times`: weighted time of each problem with the chosen rows; `open`: rows that may be added.
  bool descend(const std::vector<double>& times, const std::vector<std::size_t>& open,
               std::size_t left) {
    if (++nodes_ > task_.most_nodes) return false;
    const double total = std::accumulate(times.begin(), times.end(), 0.0);
    if (left == 0) {
      keep_if_better(total);
      return true;
    }
    std::vector<option> options;
    for (const std::size_t row : open) {
      double saving = 0;
      for (std::size_t p = 0; p < times.size(); ++p) {
        saving += std::max(0.0, times[p] - served(p, row));
      }
      options.push_back({row, saving});
    }
    std::stable_sort(options.begin(), options.end(),
                     [](const option& a, const option& b) { return a.saving > b.saving; });
    return branch(times, options, total, left);
  }

  /// Takes each option in turn; those before it are then out.
  bool branch(const std::vector<double>& times, const std::vector<option>& options, double total,
              std::size_t left) {
    for (std::size_t i = 0; i + left <= options.size(); ++i) {
      double most_saved = 0;
      for (std::size_t j = i; j < i + left; ++j) most_saved += options[j].saving;
      if (total - most_saved > limit()) break;
      std::vector<double> after = times;
      std::vector<std::size_t> open;
      for (std::size_t p = 0; p < after.size(); ++p) {
        after[p] = std::min(after[p], served(p, options[i].row));
      }
      for (std::size_t j = i + 1; j < options.size(); ++j) open.push_back(options[j].row);
      chosen_.push_back(options[i].row);
      const bool finished = descend(after, open, left - 1);
      chosen_.pop_back();
      if (!finished) return false;
    }
    return true;
  }

  const cover_task& task_;
  double allowed_;
  double penalty_;
  std::vector<std::size_t> rows_;  // rows that no other makes superfluous
  std::vector<std::size_t> chosen_;
  std::vector<std::size_t> best_;
  double best_total_ = 0;
  double best_cost_ = 0;
  std::size_t nodes_ = 0;
};

/// Weighted time with unserved problems at a penalty, so that any two sets compare.
double penalised(const cover_task& task, const std::vector<std::size_t>& rows, double penalty) {
  double total = 0;
  for (std::size_t p = 0; p < task.seconds.size(); ++p) {
    double best = penalty;
    for (const std::size_t row : rows) {
      best = std::min(best, task.weights[p] * task.seconds[p][row]);
    }
    total += best;
  }
  return total;
}

/// Takes the row with the least penalised time into the set; false if nothing is gained.
bool add_best(const cover_task& task, std::vector<std::size_t>& rows, double penalty) {
  const double before = penalised(task, rows, penalty);
  double least = before * (1 - rounding);
  std::size_t best = row_count(task);
  for (std::size_t row = 0; row < row_count(task); ++row) {
    if (std::find(rows.begin(), rows.end(), row) != rows.end()) continue;
    rows.push_back(row);
    const double total = penalised(task, rows, penalty);
    rows.pop_back();
    if (total < least) {
      least = total;
      best = row;
    }
  }
  if (best == row_count(task)) return false;
  rows.push_back(best);
  return true;
}

}  // namespace

double seconds_of(const cover_task& task, const std::vector<std::size_t>& rows) {
  return penalised(task, rows, unserved);
}

std::vector<std::size_t> unservable(const cover_task& task) {
  std::vector<std::size_t> problems;
  for (std::size_t p = 0; p < task.seconds.size(); ++p) {
    const auto& times = task.seconds[p];
    const bool served = std::any_of(times.begin(), times.end(),
                                    [](double seconds) { return std::isfinite(seconds); });
    if (!served) problems.push_back(p);
  }
  return problems;
}

std::vector<std::size_t> greedy_cover(const cover_task& task) {
  const double allowed = seconds_of(task, all_rows(task)) * (1 + task.loss) * (1 + rounding);
  const double penalty = penalty_of(task, allowed);
  std::vector<std::size_t> rows;
  while (!(seconds_of(task, rows) <= allowed) && add_best(task, rows, penalty)) {
  }
  for (std::size_t i = 0; i < rows.size();) {
    std::vector<std::size_t> fewer = rows;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (seconds_of(task, fewer) <= allowed) {
      rows = std::move(fewer);
    } else {
      ++i;
    }
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

cover smallest_cover(const cover_task& task) {
  cover answer;
  answer.exact = true;
  if (task.seconds.empty()) return answer;
  answer.best_seconds = seconds_of(task, all_rows(task));
  answer.rows = greedy_cover(task);
  search sets(task, answer.best_seconds * (1 + task.loss));
  for (answer.least_rows = 1; answer.least_rows <= answer.rows.size(); ++answer.least_rows) {
    answer.exact = sets.run(answer.least_rows);
    if (!answer.exact || sets.found()) break;
  }
  if (sets.found() && sets.best().size() <= answer.rows.size()) answer.rows = sets.best();
  answer.least_rows = std::min(answer.least_rows, answer.rows.size());
  answer.exact = answer.exact || answer.least_rows == answer.rows.size();
  answer.seconds = seconds_of(task, answer.rows);
  answer.nodes = sets.nodes();
  return answer;
}

std::vector<further_row> further_rows(const cover_task& task, std::vector<std::size_t> rows,
                                      std::size_t most) {
  const double penalty = penalty_of(task, 0);
  std::vector<further_row> list;
  while (list.size() < most && add_best(task, rows, penalty)) {
    list.push_back({rows.back(), seconds_of(task, rows)});
  }
  return list;
}

}  // namespace tessera::tuner
