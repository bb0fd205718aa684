// What `tessera tune` says: progress while it works, JSON lines, and the table at the end.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/object.hpp>

#include "tools/tuner/tune.hpp"

namespace tessera::tool {

/// Progress on stderr: on a terminal one line with a bar, the time left and the row that is being
/// measured; elsewhere a line per problem; nothing if quiet.
class tune_progress {
 public:
  tune_progress(bool quiet, double budget_seconds);
  ~tune_progress();
  tune_progress(const tune_progress&) = delete;
  tune_progress& operator=(const tune_progress&) = delete;

  void begin(const tuner::planned_problem& problem, std::size_t index, std::size_t total);
  void measure(std::string_view phase, const tuner::candidate& row);
  void end(const tuner::tuned_problem& found);

 private:
  using clock = std::chrono::steady_clock;

  /// Seconds until everything is measured, by the mean of the problems so far, and no more than the
  /// budget has; negative: not known yet.
  double seconds_left() const;
  void erase() const;

  bool quiet_;
  bool in_place_;
  double budget_;
  clock::time_point begin_ = clock::now();
  clock::time_point drawn_{};
  std::string what_;
  std::size_t index_ = 0;
  std::size_t total_ = 0;
  std::size_t measured_ = 0;
  double seconds_measured_ = 0;
};

/// "1 h 5 min", "3 min 20 s", "12 s".
std::string duration_text(double seconds);

/// First line of the JSON stream: the command, and the device whose rows it measured.
boost::json::object heading_json(const std::string& command, const device_facts& device,
                                 const std::string& environment);
boost::json::object to_json(const tuner::planned_problem& planned);
boost::json::object to_json(const tuner::tuned_problem& found);
boost::json::object to_json(const tuner::session_summary& all);

/// The table of what would be measured.
void print_plan(const std::vector<tuner::planned_problem>& planned,
                const tuner::measuring_rules& rules);

/// The table of what was found, the rows that failed, and the figures over all problems.
void print_found(const std::vector<tuner::tuned_problem>& found, const tuner::session_summary& all);

}  // namespace tessera::tool
