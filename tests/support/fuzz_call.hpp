// One call of a fuzz test (fuzz.hpp) that is legal: right, planned too, or refused by a row that
// does not run it.
#pragma once

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "call_run.hpp"
#include "fuzz.hpp"

namespace tessera::support {

/// A legal call, through the library's own choice (null) or through a row.
inline void check_legal_call(const family& kind, call_data& data, const instance* row,
                             random_source& random, fuzz_tally& counts) {
  context where{.threads = random.chance(0.25) ? 2 : 1};
  if (row != nullptr) where.row = row->name;
  // A call without elements to compute has nothing to choose for.
  const bool eligible = row == nullptr || !data.has_output_elements() ||
                        (runs_here(row->target) && runs(kind, *row, problem_here(data.problem())));
  if (!eligible) {
    ++counts.ineligible;
    const status done = call_here(kind, data.problem(), where);
    ASSERT_EQ(done.code(), status_code::ineligible_row) << where.row << ": " << done.message();
    ASSERT_FALSE(done.message().empty());
    ASSERT_TRUE(data.outputs_untouched());
    return;
  }
  ++counts.right;
  const call_expectation expectation(data.call());
  std::vector<std::vector<std::byte>> first;
  ASSERT_EQ(complaints_of_call(kind, data, expectation, where, first), "")
      << where.row << " " << data.text();
  if (!random.chance(0.2) || !data.has_output_elements()) return;
  ASSERT_EQ(complaints_of_plan(kind, data, expectation, where), "")
      << where.row << " " << data.text();
}

}  // namespace tessera::support
