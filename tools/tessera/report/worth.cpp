#include "worth.hpp"

#include <algorithm>
#include <limits>

#include "numbers.hpp"
#include "tools/tuner/cover.hpp"

namespace tessera::tool::report {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// The fastest row of a problem and the time of the next.
struct podium {
  const measurement* best = nullptr;
  double next_us = never;
};

podium podium_of(const tuned_problem& problem) {
  podium found;
  for (const measurement& measurement : problem.measured) {
    if (!measurement.us) continue;
    if (found.best == nullptr || *measurement.us < *found.best->us) {
      if (found.best != nullptr) found.next_us = *found.best->us;
      found.best = &measurement;
    } else {
      found.next_us = std::min(found.next_us, *measurement.us);
    }
  }
  return found;
}

/// The measured problems as a task of the tuner, with the rows' names in its order.
struct named_task {
  tuner::cover_task task;
  std::vector<std::string> rows;
};

named_task task_of(const input& from) {
  std::map<std::string, std::size_t> place;
  for (const tuned_problem& problem : from.problems) {
    for (const measurement& measurement : problem.measured) {
      if (measurement.us) place.try_emplace(measurement.row, 0);
    }
  }
  named_task task;
  for (auto& [row, index] : place) {
    index = task.rows.size();
    task.rows.push_back(row);
    const auto known = from.rows.find(row);
    task.task.costs.push_back(known == from.rows.end() ? 0 : known->second.cost.bytes.value_or(0));
  }
  for (const tuned_problem& problem : from.problems) {
    std::vector<double> seconds(task.rows.size(), tuner::unserved);
    bool any = false;
    for (const measurement& measurement : problem.measured) {
      if (!measurement.us) continue;
      seconds[place.at(measurement.row)] = *measurement.us * 1e-6;
      any = true;
    }
    if (!any || !(problem.count > 0)) continue;
    task.task.weights.push_back(problem.count);
    task.task.seconds.push_back(std::move(seconds));
  }
  return task;
}

/// `sum` and one more part; empty once a part is unknown.
std::optional<double> plus(std::optional<double> sum, std::optional<double> part) {
  if (!sum || !part) return std::nullopt;
  return *sum + *part;
}

}  // namespace

std::map<std::string, row_worth> worth_of_rows(const input& from) {
  std::map<std::string, row_worth> found;
  for (const bench_run& run : from.runs) {
    for (const bench_case& timing : run.cases) {
      if (from.rows.contains(timing.row)) ++found[timing.row].cases;
    }
  }
  std::map<std::string, geometric_mean> gains;
  for (const tuned_problem& problem : from.problems) {
    const podium places = podium_of(problem);
    if (places.best == nullptr) continue;
    row_worth& worth = found[places.best->row];
    ++worth.problems;
    if (places.next_us == never) {
      ++worth.alone;
      continue;
    }
    gains[places.best->row].add(places.next_us / *places.best->us, problem.count);
    worth.saved_us += (places.next_us - *places.best->us) * problem.count;
  }
  for (const auto& [row, gain] : gains) found[row].gain = gain.value();
  return found;
}

std::vector<cover_step> cover_steps(const input& from) {
  named_task named = task_of(from);
  if (named.rows.size() < 2 || named.task.seconds.empty()) return {};
  std::vector<std::size_t> every(named.rows.size());
  for (std::size_t at = 0; at < every.size(); ++at) every[at] = at;
  const double best = tuner::seconds_of(named.task, every);
  named.task.loss = 1e12;  // serve every problem, however slowly
  const std::vector<std::size_t> base = tuner::greedy_cover(named.task);
  std::vector<cover_step> steps;
  std::optional<double> bytes = 0;
  std::optional<double> seconds = 0;
  const auto add = [&](std::size_t row, double time, bool needed) {
    const std::string& name = named.rows[row];
    const auto known = from.rows.find(name);
    const row_cost cost = known == from.rows.end() ? row_cost{} : known->second.cost;
    bytes = plus(bytes, cost.bytes);
    seconds = plus(seconds, cost.seconds);
    steps.push_back({name, time * 1e6, time / best - 1, bytes, seconds, needed});
  };
  const double base_seconds = tuner::seconds_of(named.task, base);
  for (const std::size_t row : base) add(row, base_seconds, true);
  for (const tuner::further_row& further :
       tuner::further_rows(named.task, base, named.rows.size() - base.size())) {
    add(further.row, further.seconds, false);
  }
  return steps;
}

}  // namespace tessera::tool::report
