// The smallest set of rows that serves a weighted list of problems within a stated loss.
//
// With S a set of rows and t(p, r) the seconds of row r for problem p, the time of S is
// sum_p weight(p) * min_{r in S} t(p, r), infinite if a problem has no row in S. Wanted is the
// smallest S whose time is at most (1 + loss) times that of all rows together; among the smallest
// the fastest, then the cheapest to build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace tessera::tuner {

inline constexpr double unserved = std::numeric_limits<double>::infinity();

struct cover_task {
  std::vector<double> weights{};               ///< of each problem; positive
  std::vector<std::vector<double>> seconds{};  ///< [problem][row]; `unserved`: the row cannot
  std::vector<double> costs{};                 ///< of each row: decides between equally fast sets
  double loss = 0.03;                          ///< 0.03: at most 3 % slower than all rows together
  std::size_t most_nodes = 4'000'000;          ///< of the search; then the greedy answer stands
};

struct cover {
  std::vector<std::size_t> rows;  ///< ascending; empty if there are no problems
  double seconds = 0;             ///< of these rows
  double best_seconds = 0;        ///< of all rows
  std::size_t least_rows = 0;     ///< no smaller set than this is within the loss
  bool exact = false;             ///< rows.size() == least_rows was proved
  std::size_t nodes = 0;          ///< of the search

  /// seconds over best_seconds, minus 1.
  double loss() const noexcept { return best_seconds > 0 ? seconds / best_seconds - 1 : 0; }
};

/// Weighted time of a set of rows.
double seconds_of(const cover_task& task, const std::vector<std::size_t>& rows);

/// Problems that no row serves, by index; `smallest_cover` needs a task without any.
std::vector<std::size_t> unservable(const cover_task& task);

/// Branch and bound; where that takes more than `most_nodes`, the greedy set with the bound that
/// the search has proved until then.
cover smallest_cover(const cover_task& task);

/// The greedy set alone: adds the row that saves most until the loss is met, then drops rows that
/// turned out to be unnecessary.
std::vector<std::size_t> greedy_cover(const cover_task& task);

/// What adding one row to a set would buy.
struct further_row {
  std::size_t row = 0;
  double seconds = 0;  ///< weighted time with this row and those before it in the list
};

/// The rows that would be added next, best first, each on top of the ones before it; stops where
/// nothing is gained any more.
std::vector<further_row> further_rows(const cover_task& task, std::vector<std::size_t> rows,
                                      std::size_t most);

}  // namespace tessera::tuner
