// What rows are worth on the problems that were measured, and in which order they would be added.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model.hpp"

namespace tessera::tool::report {

/// One row against all others.
struct row_worth {
  std::size_t cases = 0;     ///< bench cases that ran on it
  std::size_t problems = 0;  ///< measured problems whose fastest row it is
  std::size_t alone = 0;     ///< of these, problems that no other row was timed on
  double gain = 1;           ///< geometric mean over the next best row, where there is one
  double saved_us = 0;       ///< weighted sum of the time the next best row would add
};

std::map<std::string, row_worth> worth_of_rows(const input& from);

/// A set of rows that grows by one.
struct cover_step {
  std::string row;
  double us = 0;                ///< weighted time of all problems with the rows up to this one
  double loss = 0;              ///< over the time with every row, minus 1
  std::optional<double> bytes;  ///< of the rows up to this one, if all are known
  std::optional<double> seconds;
  bool needed = false;  ///< in the smallest set that serves every problem
};

/// First a small set that serves every measured problem, then further rows, each the one that saves
/// most; ends where nothing is saved. Empty if fewer than two rows were timed.
std::vector<cover_step> cover_steps(const input& from);

}  // namespace tessera::tool::report
