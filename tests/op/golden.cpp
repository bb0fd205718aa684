// Every golden file through the row the library chooses, and through every row that can take it.
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/flash_golden.hpp"
#include "tests/support/flash_run.hpp"

namespace {

using golden_case = tessera::support::flash_golden_case;

class golden : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(golden, agrees_with_its_reference) {
  golden_case one(GetParam());
  const auto done = tessera::support::run(one.op(), one.args(), one.options());
  ASSERT_TRUE(done) << done.message();
  EXPECT_EQ(one.complaints(), "");
}

TEST_P(golden, agrees_on_every_row) {
  golden_case one(GetParam());
  const auto problem = tessera::support::problem_here(one.args(), one.options(), one.op());
  int ran = 0;
  for (const tessera::instance& row : tessera::attention_registry()) {
    if (!tessera::support::takes(row, problem)) continue;
    SCOPED_TRACE(row.name);
    one.reset_outputs();
    const auto done = tessera::support::run(one.op(), one.args(), one.options(), {.row = row.name});
    ASSERT_TRUE(done) << done.message();
    EXPECT_EQ(one.complaints(), "");
    ++ran;
  }
  EXPECT_GT(ran, 0) << "no row of this build takes the case on this machine";
}

INSTANTIATE_TEST_SUITE_P(files, golden, testing::ValuesIn(tessera::support::flash_golden_files()),
                         [](const auto& row) {
                           return tessera::support::test_name(row.param.stem().string());
                         });

}  // namespace
