#include "selecting.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

#include <tessera/lookup/store.hpp>

namespace tessera::tuner {
namespace {

constexpr std::size_t most_further_rows = 5;

/// A measured time of one row for one key, newest source first: the log, then the tables.
class known_times {
 public:
  known_times(const problem_key& key, const measurement_log& log, const lookup_tables& tables)
      : logged_(log.find(key)) {
    for (const lookup_table* layer : {&tables.user, &tables.site, &tables.shipped}) {
      const lookup_record* record =
          layer->exact(key.family, key.device_class, key.identity, key.size, key.code_version);
      if (record != nullptr && record->code_version == key.code_version) records_.push_back(record);
    }
  }

  bool failed(std::string_view row) const {
    const logged_row* logged = logged_ == nullptr ? nullptr : logged_->find(row);
    return logged != nullptr && is_failure(logged->state);
  }

  /// 0: not measured.
  double seconds(std::string_view row) const {
    const logged_row* logged = logged_ == nullptr ? nullptr : logged_->find(row);
    if (logged != nullptr && logged->samples > 0) return logged->seconds;
    for (const lookup_record* record : records_) {
      if (record->row == row) return record->median_us * 1e-6;
      if (record->default_row == row && record->default_us > 0) return record->default_us * 1e-6;
      if (record->runner_up == row && record->runner_up_us > 0) return record->runner_up_us * 1e-6;
    }
    return 0;
  }

 private:
  const logged_problem* logged_;
  std::vector<const lookup_record*> records_;
};

/// Problems with one key, most calls first to come.
struct keyed_problem {
  std::unique_ptr<tunable_problem> problem;
  std::int64_t count = 0;
  std::size_t problems = 0;
};

result<std::map<std::string, keyed_problem>> by_key(const std::vector<weighted_problem>& problems,
                                                    const problem_opener& open,
                                                    const conditions& where) {
  std::map<std::string, keyed_problem> keyed;
  for (std::size_t n = 0; n < problems.size(); ++n) {
    auto opened = open(problems[n].text, where);
    if (!opened) {
      return status(opened.code(),
                    fmt::format("problem {} of {}: {}", n + 1, problems.size(), opened.message()));
    }
    const problem_key& key = (*opened)->key();
    keyed_problem& problem = keyed[key.family + '\t' + key.identity + '\t' + key.size];
    problem.count += problems[n].count;
    problem.problems += 1;
    if (problem.problem == nullptr) problem.problem = *std::move(opened);
  }
  return keyed;
}

/// Median of measured over predicted; 1 where nothing was measured.
double calibration(const tunable_problem& problem, const known_times& known) {
  std::vector<double> ratios;
  for (const candidate& row : problem.candidates()) {
    const double seconds = known.seconds(row.name);
    if (seconds > 0 && row.predicted_seconds > 0) ratios.push_back(seconds / row.predicted_seconds);
  }
  return ratios.empty() ? 1 : median_of(std::move(ratios));
}

/// Rows by name over all problems; the index of each.
std::map<std::string, std::size_t> collect_rows(const std::map<std::string, keyed_problem>& keyed,
                                                std::vector<priced_row>& rows) {
  std::map<std::string, priced_row> all;
  for (const auto& [text, member] : keyed) {
    for (const candidate& row : member.problem->candidates()) {
      all[row.name] = {row.name, row.resources, row.compile_seconds, row.fallback};
    }
  }
  std::map<std::string, std::size_t> index;
  for (auto& [name, row] : all) {
    index[name] = rows.size();
    rows.push_back(std::move(row));
  }
  return index;
}

planned_problem planned_of(const keyed_problem& keyed) {
  const tunable_problem& problem = *keyed.problem;
  planned_problem planned;
  planned.text = problem.text();
  planned.count = keyed.count;
  planned.problems = keyed.problems;
  planned.key = problem.key();
  planned.default_row = problem.candidates()[problem.default_row()].name;
  planned.eligible = problem.candidates().size();
  return planned;
}

cover_task task_of(const trace_times& trace, double loss) {
  cover_task task;
  task.loss = loss;
  for (const priced_row& row : trace.rows) task.costs.push_back(row.bytes);
  for (std::size_t p = 0; p < trace.problems.size(); ++p) {
    task.weights.push_back(static_cast<double>(trace.problems[p].count));
    std::vector<double> seconds;
    for (const row_time& time : trace.times[p]) seconds.push_back(time.seconds);
    task.seconds.push_back(std::move(seconds));
  }
  return task;
}

/// The row of `rows` with the least value; `value(row)` may be infinite.
template <class Value>
std::size_t least(const std::vector<std::size_t>& rows, Value value) {
  return *std::min_element(rows.begin(), rows.end(),
                           [&](std::size_t a, std::size_t b) { return value(a) < value(b); });
}

}  // namespace

result<trace_times> times_of(const std::vector<weighted_problem>& problems,
                             const problem_opener& open, const conditions& where,
                             const measurement_log& log, const lookup_tables& tables) {
  const auto keyed = by_key(problems, open, where);
  if (!keyed) return keyed.failure();
  trace_times trace;
  const std::map<std::string, std::size_t> index = collect_rows(*keyed, trace.rows);
  for (const auto& [text, member] : *keyed) {
    const auto candidates = member.problem->candidates();
    const known_times known(member.problem->key(), log, tables);
    const double scale = calibration(*member.problem, known);
    const bool special = std::any_of(candidates.begin(), candidates.end(), [&](const auto& row) {
      return !row.fallback && !known.failed(row.name);
    });
    trace.fallbacks += special ? 0 : 1;
    std::vector<row_time> times(trace.rows.size());
    for (const candidate& row : candidates) {
      if (known.failed(row.name) || (special && row.fallback)) continue;
      row_time& time = times[index.at(row.name)];
      const double seconds = known.seconds(row.name);
      time.predicted = row.predicted_seconds;
      time.source = seconds > 0 ? time_source::measured : time_source::predicted;
      time.seconds = seconds > 0 ? seconds : scale * row.predicted_seconds;
      (seconds > 0 ? trace.measured : trace.predicted) += 1;
    }
    trace.times.push_back(std::move(times));
    trace.problems.push_back(planned_of(member));
  }
  return trace;
}

selection_result select_rows(const trace_times& trace, double loss) {
  const cover_task task = task_of(trace, loss);
  selection_result chosen;
  chosen.found = smallest_cover(task);
  const std::vector<std::size_t>& rows = chosen.found.rows;
  for (std::size_t p = 0; p < trace.problems.size(); ++p) {
    const auto& times = trace.times[p];
    const std::size_t by_model = least(rows, [&](std::size_t r) { return times[r].predicted; });
    chosen.heuristic_seconds += task.weights[p] * times[by_model].seconds;
    chosen.serves.push_back(least(rows, [&](std::size_t r) { return times[r].seconds; }));
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::vector<std::size_t> fewer = rows;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    chosen.loss_without.push_back(seconds_of(task, fewer) / chosen.found.best_seconds - 1);
  }
  chosen.further = further_rows(task, rows, most_further_rows);
  return chosen;
}

std::vector<lookup_record> lookup_lines(const trace_times& trace, const selection_result& chosen,
                                        const std::string& environment) {
  std::vector<lookup_record> lines;
  for (std::size_t p = 0; p < trace.problems.size(); ++p) {
    const planned_problem& problem = trace.problems[p];
    const std::size_t row = chosen.serves[p];
    if (trace.times[p][row].source != time_source::measured) continue;
    lookup_record line;
    line.family = problem.key.family;
    line.semantic_version = problem.key.semantic_version;
    line.code_version = problem.key.code_version;
    line.device_class = problem.key.device_class;
    line.identity = problem.key.identity;
    line.size = problem.key.size;
    line.row = trace.rows[row].name;
    line.median_us = trace.times[p][row].seconds * 1e6;
    line.default_row = problem.default_row;
    line.mode = "eager cold";
    line.source = "select";
    line.environment = environment;
    line.date = utc_now();
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string row_list(const trace_times& trace, const selection_result& chosen, double loss) {
  std::string text = fmt::format(
      "# Rows for {} recorded problems: {} of {}, {:.2f} % over the best of all ({:g} % "
      "allowed).\n",
      trace.problems.size(), chosen.found.rows.size(), trace.rows.size(), chosen.found.loss() * 100,
      loss * 100);
  for (const std::size_t row : chosen.found.rows) text += trace.rows[row].name + '\n';
  return text;
}

}  // namespace tessera::tuner
