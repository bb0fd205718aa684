// Every golden file through the row that the library chooses, through every row that takes it, and
// against the operation's reference.
#include "tests/support/golden.hpp"

#include <string>

#include <gtest/gtest.h>

#include "tests/op/operation_test.hpp"
#include "tests/support/call_run.hpp"

namespace tessera::support {
namespace {

class golden : public operation_test<golden_name> {};

TEST_P(golden, agrees_with_its_reference) {
  golden_call call(GetParam());
  const status done = call_here(*GetParam().kind, call.problem());
  ASSERT_TRUE(done) << done.message();
  EXPECT_EQ(call.complaints(), "");
}

TEST_P(golden, agrees_on_every_row) {
  golden_call call(GetParam());
  int ran = 0;
  for (const tested_row& tested : tested_rows()) {
    const instance& row = *tested.row;
    if (tested.kind != GetParam().kind || !runs_here(row.target)) continue;
    if (!runs(*tested.kind, row, problem_here(call.problem()))) continue;
    SCOPED_TRACE(row.name);
    call.reset_outputs();
    const status done = call_here(*tested.kind, call.problem(), {.row = row.name});
    ASSERT_TRUE(done) << done.message();
    EXPECT_EQ(call.complaints(), "");
    ++ran;
  }
  EXPECT_GT(ran, 0) << "no row of this build takes the case on this machine";
}

TEST_P(golden, agrees_with_the_definition_to_double_precision) {
  EXPECT_EQ(golden_call(GetParam()).reference_complaints(), "");
}

INSTANTIATE_TEST_SUITE_P(files, golden, testing::ValuesIn(golden_names()),
                         [](const auto& tested) { return tested.param.text(); });

}  // namespace
}  // namespace tessera::support
