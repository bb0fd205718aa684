// What was measured, every row of every problem: beside the lookup table, which has winners only.
//
// `<folder of the user's table>/measurements/<family>.txt`, in the form of a lookup table. Of a
// problem there is one line per row that was tried, `source` being "tune <state>" or
// "tune <state>: <reason>", and at last a line "tune decided: <reason>" that names the row to be
// used. A row that failed has its predicted time in place of a measured one. Nothing at run time
// reads these files: they let a tune go on where another ended, keep failed rows from being tried
// again with the same code, and give `select` and reports all they can know.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/lookup/record.hpp>
#include <tessera/spec/status.hpp>

#include "measure.hpp"

namespace tessera::tuner {

/// One row of one problem as it stands in the log.
struct logged_row {
  std::string row;
  row_state state = row_state::untried;
  std::string reason;
  double seconds = 0;  ///< median; of a failed row the predicted time
  double mad = 0;
  std::int64_t samples = 0;

  /// False also for a row that failed when it had been timed.
  bool is_timed() const noexcept { return samples > 0 && !is_failure(state); }
};

/// All that the log knows of one key, for one code version.
struct logged_problem {
  std::vector<logged_row> rows;
  std::string winner;  ///< empty: the tune was interrupted before it decided
  std::string default_row;
  std::string reason;
  std::string date;

  const logged_row* find(std::string_view row) const noexcept;
};

class measurement_log {
 public:
  /// The log of the table `table_path`; empty: kept in memory only. Reads what is there; damaged
  /// lines are passed over.
  explicit measurement_log(const std::string& table_path);

  /// What is known of a key with its own code version, or null.
  const logged_problem* find(const problem_key& key) const;

  /// Adds the lines of one problem in one durable write. `decided` has the key's texts, the winner,
  /// default, runner-up and their times.
  status append(const problem_key& key, const std::vector<logged_row>& rows,
                const lookup_record& decided, std::string_view reason);

 private:
  void take(const lookup_record& line);
  std::string path_of(std::string_view family) const;

  std::string folder_;
  std::map<std::string, logged_problem, std::less<>> problems_;
};

}  // namespace tessera::tuner
