// From recorded problems to the rows that a smaller build needs: times of every row for every
// problem, measured where they are known and predicted where not, and the smallest set of rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/lookup/table.hpp>
#include <tessera/spec/status.hpp>

#include "cover.hpp"
#include "measurement_log.hpp"
#include "tunable_problem.hpp"
#include "tune.hpp"

namespace tessera::tuner {

/// A row that serves some of the problems, with what it costs a build.
struct priced_row {
  std::string name;
  double bytes = 0;            ///< of code; 0: not known
  double compile_seconds = 0;  ///< of one core; 0: not known
  bool fallback = false;
};

/// Where the time of a row for a problem comes from.
enum class time_source : std::uint8_t { none, predicted, measured };

struct row_time {
  double seconds = unserved;
  time_source source = time_source::none;
  double predicted = unserved;  ///< by the cost model alone: what chooses where no table answers
};

/// A trace against the rows of this build.
struct trace_times {
  std::vector<planned_problem> problems;     ///< one per key, with the calls of all its problems
  std::vector<priced_row> rows;              ///< by name
  std::vector<std::vector<row_time>> times;  ///< [problem][row]; `none`: the row cannot serve it
  std::size_t measured = 0, predicted = 0;   ///< pairs of either kind
  std::size_t fallbacks = 0;  ///< problems that only rows for any problem serve, in this build too
};

/// Collects the times. A predicted time is scaled by what the problem's measured rows took over
/// their own predictions. Rows that failed with this code serve nothing; where a special row serves
/// a problem, rows that take any problem do not.
result<trace_times> times_of(const std::vector<weighted_problem>& problems,
                             const problem_opener& open, const conditions& where,
                             const measurement_log& log, const lookup_tables& tables);

/// A set of rows for a trace.
struct selection_result {
  cover found;
  double heuristic_seconds = 0;  ///< weighted time of the set where no table says which row to take
  std::vector<further_row> further;  ///< what would be added next
  std::vector<double> loss_without;  ///< per row of the set: the loss if it were left out
  std::vector<std::size_t> serves;   ///< per problem: the row of the set that serves it
};

/// The smallest set within `loss` (0.03: 3 %) of all rows.
selection_result select_rows(const trace_times& trace, double loss);

/// Records that make a build with these rows take the row it was selected with: of every problem
/// whose time was measured.
std::vector<lookup_record> lookup_lines(const trace_times& trace, const selection_result& chosen,
                                        const std::string& environment);

/// The row list, as tessera_add_kernels(ROWS) reads it: a row a line behind comments.
std::string row_list(const trace_times& trace, const selection_result& chosen, double loss);

}  // namespace tessera::tuner
