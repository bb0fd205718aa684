// What a table will cost: the report of --dry-run, and the budgets.
#pragma once

#include <string>
#include <vector>

#include "cost.hpp"
#include "units.hpp"

namespace tessera::generate {

/// Rows by block of the axes, units, and what compiling them is expected to take.
std::string plan_text(const family& family, const table& table, const std::vector<unit>& units,
                      const cost_file& costs);

/// One sentence for each limit of the family that the table exceeds; empty if it keeps to all.
std::string exceeded(const family& family, const std::vector<unit>& units, const cost_file& costs);

}  // namespace tessera::generate
