// The gate and the race: who is let in, who drops out, and that one bad row costs one row.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "pretended_problem.hpp"
#include "tools/tuner/race.hpp"

namespace {

using namespace tessera::testing;
using tessera::result;

struct measured {
  explicit measured(std::vector<pretended_row> rows, measuring_rules rules = quick_rules(),
                    bool shares = false)
      : problem("problem", std::move(rows), shares) {
    EXPECT_TRUE(problem.make_inputs(1));
    auto checked = check_rows(problem, shortlist(problem, 99), rules);
    EXPECT_TRUE(checked) << checked.message();
    found = *checked;
    const tessera::status done = time_rows(problem, found, rules);
    EXPECT_TRUE(done) << done.message();
  }
  const measured_row& operator[](std::string_view name) const {
    for (const measured_row& row : found) {
      if (problem.candidates()[row.row].name == name) return row;
    }
    ADD_FAILURE() << name << " is not there";
    return found.front();
  }

  pretended_problem problem;
  std::vector<measured_row> found;
};

TEST(Property12, TunerRejectsADeliberatelyWrongCandidateAndADeliberatelyHangingOne) {
  measuring_rules rules = quick_rules();
  rules.limit_seconds = 1;
  const measured rows({{"standard", 2e-3},
                       {"wrong", 1e-4, behaviour::wrong},
                       {"hanging", 1e-4, behaviour::hangs},
                       {"reference", 3e-3}},
                      rules);
  EXPECT_EQ(rows["wrong"].state, row_state::wrong);
  EXPECT_EQ(rows["wrong"].reason, "out is 41, the reference says 42");
  EXPECT_EQ(rows["hanging"].state, row_state::timeout);
  EXPECT_TRUE(rows["wrong"].seconds.empty());
  EXPECT_TRUE(rows["hanging"].seconds.empty());
  EXPECT_EQ(rows["standard"].state, row_state::timed);
  const decision made = decide(timed_rows(rows.problem, rows.found, rules), 0, {});
  EXPECT_EQ(rows.problem.candidates()[made.winner].name, "standard");
}

TEST(Gate, ACrashAndARefusalCostOneRowEach) {
  const measured rows({{"standard", 1e-3},
                       {"crashing", 1e-4, behaviour::crashes},
                       {"refusing", 1e-4, behaviour::refuses},
                       {"reference", 1e-3}});
  EXPECT_EQ(rows["crashing"].state, row_state::crashed);
  EXPECT_NE(rows["crashing"].reason.find("signal 6"), std::string::npos);
  EXPECT_EQ(rows["refusing"].state, row_state::refused);
  EXPECT_EQ(rows["refusing"].reason, "the device is not there");
  EXPECT_EQ(rows["reference"].state, row_state::timed);
}

TEST(Gate, WithoutAReferenceTheDefinitionDecides) {
  for (const behaviour reference : {behaviour::crashes, behaviour::wrong}) {
    const measured rows(
        {{"standard", 1e-3}, {"wrong", 1e-3, behaviour::wrong}, {"reference", 1e-3, reference}});
    EXPECT_EQ(rows["standard"].state, row_state::timed);
    EXPECT_EQ(rows["wrong"].state, row_state::wrong);
    EXPECT_EQ(rows["wrong"].reason, "out is 41, the definition says 42");
    EXPECT_EQ(rows["reference"].state,
              reference == behaviour::wrong ? row_state::wrong : row_state::crashed);
  }
}

TEST(Gate, RowsThatShareAProcessAreJudgedAsIfAlone) {
  measuring_rules rules = quick_rules();
  rules.limit_seconds = 1;
  const measured rows({{"standard", 1e-3},
                       {"spoiling", 1e-3, behaviour::spoils},
                       {"behind it", 1e-3},
                       {"crashing", 1e-3, behaviour::crashes},
                       {"behind that", 1e-3},
                       {"wrong", 1e-3, behaviour::wrong},
                       {"refusing", 1e-3, behaviour::refuses},
                       {"hanging", 1e-3, behaviour::hangs},
                       {"reference", 1e-3}},
                      rules, true);
  for (const char* right : {"standard", "spoiling", "behind it", "behind that", "reference"}) {
    EXPECT_FALSE(is_failure(rows[right].state)) << right << ": " << rows[right].reason;
    EXPECT_GT(rows[right].first_seconds, 0) << right;
  }
  EXPECT_EQ(rows["crashing"].state, row_state::crashed);
  EXPECT_EQ(rows["wrong"].state, row_state::wrong);
  EXPECT_EQ(rows["refusing"].state, row_state::refused);
  EXPECT_EQ(rows["hanging"].state, row_state::timeout);
}

TEST(Gate, EachStepOfARowMayTakeTheLimit) {
  measuring_rules rules = quick_rules();
  rules.limit_seconds = 1;
  pretended_problem problem("problem", {{"standard", 1e-3, behaviour::takes_its_time},
                                        {"reference", 1e-3, behaviour::takes_its_time}});
  ASSERT_TRUE(problem.make_inputs(1));
  const auto checked = check_rows(problem, {0}, rules, {}, judges::both);
  ASSERT_TRUE(checked) << checked.message();
  EXPECT_EQ(checked->front().state, row_state::timed) << checked->front().reason;
}

TEST(Race, FindsTheFastestAndAbandonsTheSlow) {
  const measured rows({{"standard", 2e-3}, {"fast", 1e-3}, {"slow", 8e-3}, {"reference", 2e-3}});
  EXPECT_EQ(rows["slow"].state, row_state::abandoned);
  EXPECT_LT(rows["slow"].seconds.size(), quick_rules().least_rounds);
  EXPECT_EQ(rows["standard"].state, row_state::timed);
  EXPECT_GE(rows["fast"].seconds.size(), quick_rules().least_rounds);
  EXPECT_EQ(rows.problem.candidates()[rows.found[leader_of(rows.found, {})].row].name, "fast");
}

TEST(Race, GoesOnWithoutARowThatCrashesOrHangsInIt) {
  measuring_rules rules = quick_rules();
  rules.limit_seconds = 1;
  const measured rows({{"standard", 1e-3},
                       {"late crash", 1e-3, behaviour::crashes_when_timed},
                       {"late hang", 1e-3, behaviour::hangs_when_timed},
                       {"reference", 1e-3}},
                      rules);
  EXPECT_EQ(rows["late crash"].state, row_state::crashed);
  EXPECT_EQ(rows["late hang"].state, row_state::timeout);
  for (const char* name : {"standard", "reference"}) {
    EXPECT_EQ(rows[name].state, row_state::timed) << name;
    EXPECT_GE(rows[name].seconds.size(), rules.least_rounds) << name;
  }
}

TEST(Race, TheDefaultStaysHoweverSlow) {
  const measured rows({{"standard", 8e-3}, {"fast", 5e-4}, {"reference", 5e-4}});
  EXPECT_EQ(rows["standard"].state, row_state::timed);
  EXPECT_GE(rows["standard"].seconds.size(), quick_rules().least_rounds);
}

TEST(Race, IsSettledWhenMoreRoundsWouldChangeNothing) {
  std::vector<measured_row> rows(3);
  for (auto& row : rows) row.state = row_state::timed;
  rows[0].seconds = {1.0, 1.001, 0.999, 1.0, 1.0};
  rows[1].seconds = {2.0, 2.4, 1.8, 2.0, 2.1};
  rows[2].seconds = {1.01, 1.01, 1.011, 1.009, 1.01};
  EXPECT_TRUE(is_settled(rows, 0, {}));
  rows[2].seconds = {1.0, 1.2, 0.9, 1.1, 1.02};
  EXPECT_FALSE(is_settled(rows, 0, {}));
  rows[2].state = row_state::abandoned;
  EXPECT_TRUE(is_settled(rows, 0, {}));
}

TEST(Race, DisturbedSamplesCountOnlyWhereThereAreNoOthers) {
  measured_row row;
  row.disturbed = {9, 9, 9, 9};
  EXPECT_TRUE(is_disturbed(row, {}));
  EXPECT_EQ(samples_of(row, {}).size(), 4u);
  row.seconds = {1, 1, 1};
  EXPECT_FALSE(is_disturbed(row, {}));
  EXPECT_EQ(samples_of(row, {}), row.seconds);
}

TEST(Race, WhatOtherProgramsTookEndsNoRow) {
  std::vector<measured_row> rows(3);
  for (auto& row : rows) row.state = row_state::timed;
  rows[0].seconds = {1, 1, 1};
  rows[1].disturbed = {20, 21};
  rows[1].at_least = {0.5, 1};
  rows[2].disturbed = {20, 21};
  rows[2].at_least = {16, 15};
  abandon_slow(rows, 0, {});
  EXPECT_EQ(rows[1].state, row_state::timed);
  EXPECT_EQ(rows[2].state, row_state::abandoned);
  EXPECT_EQ(least_seconds(rows[1]), 0.5);
  rows[1].seconds = {18, 19};
  EXPECT_EQ(least_seconds(rows[1]), 18);
  abandon_slow(rows, 0, {});
  EXPECT_EQ(rows[1].state, row_state::abandoned);
  EXPECT_EQ(least_seconds({}), 0);
}

TEST(Shortlist, HasTheBestByPredictionTheDefaultAndTheHints) {
  std::vector<pretended_row> many;
  for (int n = 0; n < 9; ++n) many.push_back({"row" + std::to_string(n)});
  const pretended_problem problem("problem", many);
  EXPECT_EQ(shortlist(problem, 2), (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(shortlist(problem, 0), (std::vector<std::size_t>{0}));
  EXPECT_EQ(shortlist(problem, 2, {"row7", "gone"}), (std::vector<std::size_t>{0, 1, 7}));
}

}  // namespace
