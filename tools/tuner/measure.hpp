// The rows of one problem, checked and timed.
//
// First the gate: rows run in a child process, each alone on a CPU and first in it wherever it is
// found to fail, and all of their results are compared with those of the reference row, which is
// itself compared with a sample of the definition. A row that crashes, hangs, is refused or is
// wrong is out and is never timed. Then the race: the rows that passed run in random order, round
// after round, in one child process; a row that is clearly behind drops out early, and the race
// ends when more rounds would not change the answer. A crash or a hang costs the row that caused
// it: the race goes on with the others and the rounds they have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "statistics.hpp"
#include "tunable_problem.hpp"

namespace tessera::tuner {

enum class row_state : std::uint8_t {
  untried,    ///< not measured, for want of time
  timed,      ///< in the race to its end
  abandoned,  ///< timed a few rounds and clearly slower than the fastest
  wrong,      ///< its results are not those of the reference row, or a canary died
  crashed,    ///< ended its process
  timeout,    ///< did not come back
  refused,    ///< returned an error
  pruned,     ///< not among the best by predicted time: not measured
};

/// "timed", ...: stable names for files and JSON.
std::string_view name_of(row_state state) noexcept;

/// The state of that name; `known` is false if there is none.
row_state row_state_named(std::string_view name, bool& known) noexcept;

/// True for rows that must not be used: wrong, crashed, timeout, refused.
constexpr bool is_failure(row_state state) noexcept {
  return state == row_state::wrong || state == row_state::crashed || state == row_state::timeout ||
         state == row_state::refused;
}

/// How measurements are made. Times in seconds.
struct measuring_rules {
  std::size_t most_candidates = 8;  ///< by predicted time; default and reference come on top
  std::size_t least_rounds = 7;
  std::size_t most_rounds = 60;
  double race_seconds = 2;        ///< after the least rounds no further one begins beyond this
  double sample_seconds = 1e-3;   ///< short calls are repeated until a sample takes this long
  double abandon_factor = 1.5;    ///< rows slower than this many times the fastest drop out
  double settled = 0.003;         ///< errors of medians below this share end the race
  double limit_seconds = 30;      ///< silence of a child process that counts as a hang
  double lost_share = 0.01;       ///< a sample that others took more of is taken again
  std::size_t most_attempts = 4;  ///< at a sample that is not disturbed
  std::size_t least_clean = 3;    ///< rows with fewer undisturbed samples count as disturbed
  std::uint64_t seed = 1;         ///< of inputs and of the order of rows
  decision_rules deciding{};
};

/// What is known of one row.
struct measured_row {
  std::size_t row = 0;  ///< index into candidates()
  row_state state = row_state::untried;
  std::string reason{};             ///< of a failure, one sentence
  double first_seconds = 0;         ///< of a single run in the gate
  std::vector<double> seconds{};    ///< samples, one per round
  std::vector<double> disturbed{};  ///< samples that other programs took a part of
  std::vector<double> at_least{};   ///< of each of these, if that part was lost time as a whole
};

/// True if a row has too few samples that no other program disturbed.
bool is_disturbed(const measured_row& row, const measuring_rules& rules) noexcept;

/// Seconds that a call of a row takes at least, by its undisturbed samples; where these are fewer
/// than two, less what other programs took. 0 before the first sample.
double least_seconds(const measured_row& row) noexcept;

/// The undisturbed samples, or all of them where there are too few.
std::vector<double> samples_of(const measured_row& row, const measuring_rules& rules);

/// Called with the row that is next; `phase` is "check" or "time".
using measuring_observer = std::function<void(std::string_view phase, const candidate& row)>;

/// Rows worth measuring: the best `most` by predicted time, the default, and `extra` (names; rows
/// that an older version found best). Indices into candidates(), ascending.
std::vector<std::size_t> shortlist(const tunable_problem& problem, std::size_t most,
                                   const std::vector<std::string>& extra = {});

/// Who judges a row where the reference row has results. Where it has none the definition does, by
/// more samples.
enum class judges : std::uint8_t {
  reference_row,  ///< every element
  both,           ///< and the definition a sample of them
};

/// Runs the gate over `rows` (indices into candidates()). The inputs must have been made.
result<std::vector<measured_row>> check_rows(tunable_problem& problem,
                                             const std::vector<std::size_t>& rows,
                                             const measuring_rules& rules,
                                             const measuring_observer& observe = {},
                                             judges by = judges::reference_row);

/// Times the rows that passed, adding to their samples.
status time_rows(tunable_problem& problem, std::vector<measured_row>& rows,
                 const measuring_rules& rules, const measuring_observer& observe = {});

/// The rows as `decide` takes them: rows that were abandoned or failed have no samples there.
std::vector<timed_row> timed_rows(const tunable_problem& problem,
                                  const std::vector<measured_row>& rows,
                                  const measuring_rules& rules);

}  // namespace tessera::tuner
