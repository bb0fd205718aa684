// Sessions: what is stored, what is skipped, what is kept from being tried again.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/lookup/table.hpp>

#include "pretended_problem.hpp"

namespace {

using namespace tessera::testing;
using tessera::lookup_record;
using tessera::lookup_table;

session_options options_of(const std::string& table, std::vector<pretended_row> rows) {
  session_options options;
  options.open = opener_of(std::move(rows));
  options.table = table;
  options.measuring = quick_rules();
  options.environment = "a test";
  return options;
}

std::vector<tuned_problem> run(session& tuning, const std::vector<weighted_problem>& problems,
                               const session_events& events = {}) {
  const auto planned = tuning.plan(problems);
  EXPECT_TRUE(planned) << planned.message();
  const auto found = tuning.run(*planned, events);
  EXPECT_TRUE(found) << found.message();
  return found ? *found : std::vector<tuned_problem>{};
}

lookup_table table_of(const std::string& path) {
  return tessera::read_tables(std::vector<std::string>{path});
}

const std::vector<pretended_row> a_faster_row{
    {"standard", 2e-3}, {"fast", 1e-3}, {"reference", 2e-3}};

TEST(Session, StoresTheWinnerWithBaselineAndRunnerUp) {
  const scratch_folder folder;
  session tuning(options_of(folder / "lookup.txt", a_faster_row));
  const auto found = run(tuning, {{"problem", 5}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, outcome_kind::tuned);
  EXPECT_EQ(found[0].row, "fast");
  EXPECT_NEAR(found[0].gain, 2, 0.02);
  EXPECT_NEAR(found[0].hold_out_gain, 2, 0.02);
  const lookup_table table = table_of(folder / "lookup.txt");
  ASSERT_EQ(table.records().size(), 1u);
  const lookup_record& record = table.records()[0];
  EXPECT_EQ(record.row, "fast");
  EXPECT_EQ(record.default_row, "standard");
  EXPECT_NEAR(record.median_us, 1000, 10);
  EXPECT_NEAR(record.default_us, 2000, 20);
  EXPECT_FALSE(record.runner_up.empty());
  EXPECT_GE(record.samples, 5);
  EXPECT_EQ(record.code_version, "c0de");
  EXPECT_EQ(record.environment, "a test");
}

TEST(Session, WritesNoRowWhereTheDefaultStays) {
  const scratch_folder folder;
  session tuning(options_of(folder / "lookup.txt", {{"standard", 1e-3}, {"reference", 2e-3}}));
  const auto found = run(tuning, {{"problem"}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, outcome_kind::default_stays);
  EXPECT_EQ(found[0].hold_out_gain, 1);
  EXPECT_FALSE(std::filesystem::exists(folder / "lookup.txt"));
  EXPECT_TRUE(std::filesystem::exists(folder / "measurements/pretended.txt"));
}

TEST(Session, SkipsWhatTheSameCodeHasMeasured) {
  const scratch_folder folder;
  const session_options options = options_of(folder / "lookup.txt", a_faster_row);
  {
    session first(options);
    static_cast<void>(run(first, {{"problem"}}));
  }
  session second(options);
  std::size_t measured = 0;
  const session_events counting{.measures = [&](auto, const auto&) { ++measured; }};
  const auto found = run(second, {{"problem"}}, counting);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].skipped);
  EXPECT_EQ(found[0].row, "fast");
  EXPECT_EQ(found[0].reason, decision_reason::faster);
  EXPECT_EQ(measured, 0u);

  session_options again = options;
  again.retune = true;
  session third(again);
  EXPECT_FALSE(run(third, {{"problem"}}, counting)[0].skipped);
  EXPECT_GT(measured, 0u);
}

TEST(Session, MeasuresAgainWhenTheBuildHasAnotherRow) {
  const scratch_folder folder;
  {
    session first(options_of(folder / "lookup.txt", {{"standard", 2e-3}, {"reference", 2e-3}}));
    EXPECT_EQ(run(first, {{"problem"}})[0].kind, outcome_kind::default_stays);
  }
  session second(options_of(folder / "lookup.txt", a_faster_row));
  const auto found = run(second, {{"problem"}});
  EXPECT_FALSE(found[0].skipped);
  EXPECT_EQ(found[0].row, "fast");
}

TEST(Session, FailuresAreCountedStoredAndNotTriedAgain) {
  const scratch_folder folder;
  std::vector<pretended_row> rows{{"standard", 1e-3},
                                  {"wrong", 1e-4, behaviour::wrong},
                                  {"crashing", 1e-4, behaviour::crashes},
                                  {"reference", 1e-3}};
  {
    session first(options_of(folder / "lookup.txt", rows));
    const auto found = run(first, {{"problem"}});
    EXPECT_EQ(summary_of(found, 1).failed_rows, 2u);
    EXPECT_EQ(found[0].row_named("wrong")->state, row_state::wrong);
  }
  rows.push_back({"another", 1e-3});  // a new row: the problem is measured again, the bad ones not
  session second(options_of(folder / "lookup.txt", rows));
  std::vector<std::string> tried;
  const session_events noting{.measures = [&](std::string_view phase, const auto& row) {
    if (phase == "check") tried.push_back(row.name);
  }};
  const auto found = run(second, {{"problem"}}, noting);
  EXPECT_EQ(tried, (std::vector<std::string>{"standard", "reference", "another"}));
  ASSERT_NE(found[0].row_named("crashing"), nullptr);
  EXPECT_EQ(found[0].row_named("crashing")->state, row_state::crashed);
  EXPECT_NE(found[0].row_named("crashing")->reason.find("signal 6"), std::string::npos);
}

TEST(Property13, TunedChoiceAgainstDefaultOnAHoldOutRunIsNeverSlowerElseTheRowIsDropped) {
  const scratch_folder folder;
  session tuning(options_of(
      folder / "lookup.txt",
      {{"standard", 2e-3}, {"flattering", 1e-3, behaviour::slow_elsewhere}, {"reference", 2e-3}}));
  const auto found = run(tuning, {{"problem"}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, outcome_kind::default_stays);
  EXPECT_EQ(found[0].reason, decision_reason::not_repeated);
  EXPECT_EQ(found[0].row, "standard");
  EXPECT_LT(found[0].hold_out_gain, 0.97);
  EXPECT_FALSE(std::filesystem::exists(folder / "lookup.txt"));
  EXPECT_GE(summary_of(found, 1).worst_gain, 0.97);
}

TEST(Session, ALineThatNoLongerHoldsIsTakenBack) {
  const scratch_folder folder;
  const std::string table = folder / "lookup.txt";
  {
    session first(options_of(table, a_faster_row));
    EXPECT_EQ(run(first, {{"problem"}})[0].row, "fast");
  }
  session_options options =
      options_of(table, {{"standard", 1e-3}, {"fast", 1e-3}, {"reference", 1e-3}});
  options.retune = true;
  session second(options);
  EXPECT_EQ(run(second, {{"problem"}})[0].kind, outcome_kind::default_stays);
  const lookup_table after = table_of(table);
  ASSERT_EQ(after.records().size(), 1u);
  EXPECT_EQ(after.records()[0].row, "standard");
}

TEST(Session, ProblemsWithOneKeyAreMeasuredOnceTheHeaviestFirst) {
  session tuning(options_of("", a_faster_row));
  const auto planned = tuning.plan({{"aa", 1}, {"bb", 7}, {"long one", 2}});
  ASSERT_TRUE(planned) << planned.message();
  ASSERT_EQ(planned->size(), 2u);  // the pretended key is the length of the text
  EXPECT_EQ((*planned)[0].count, 8);
  EXPECT_EQ((*planned)[0].problems, 2u);
  EXPECT_EQ((*planned)[0].text, "bb");
  EXPECT_EQ((*planned)[1].text, "long one");
}

TEST(Session, StopsWhenTheBudgetIsSpentAndGoesOnTheNextTime) {
  const scratch_folder folder;
  session_options options = options_of(folder / "lookup.txt", a_faster_row);
  options.budget_seconds = 1e-6;
  const std::vector<weighted_problem> problems{{"a"}, {"bb"}, {"ccc"}};
  std::size_t answered = 0;
  for (int turn = 0; turn < 3; ++turn) {
    session tuning(options);
    const auto found = run(tuning, problems);
    answered = found.size();
    EXPECT_EQ(answered, static_cast<std::size_t>(turn) + 1);
    EXPECT_EQ(summary_of(found, 3).unmeasured, 2u - static_cast<std::size_t>(turn));
  }
  EXPECT_EQ(answered, 3u);
}

TEST(Session, TwoTunesAgreeOrStayWithTheDefault) {
  const std::vector<pretended_row> rows{{"standard", 2.0e-3, behaviour::right, 5},
                                        {"a", 1.00e-3, behaviour::right, 4},
                                        {"b", 1.003e-3, behaviour::right, 3},
                                        {"c", 1.4e-3, behaviour::right, 2},
                                        {"reference", 2.05e-3}};
  std::vector<std::string> chosen;
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    session_options options = options_of("", rows);
    options.measuring.seed = seed;
    session tuning(options);
    chosen.push_back(run(tuning, {{"problem"}})[0].row);
  }
  EXPECT_TRUE(chosen[0] == chosen[1] || chosen[0] == "standard" || chosen[1] == "standard")
      << chosen[0] << ' ' << chosen[1];
  EXPECT_EQ(chosen[0], "b");  // a and b are equal, b needs less
}

TEST(Summary, HasGeometricMeanAndWorstCase) {
  std::vector<tuned_problem> found(3);
  found[0].kind = outcome_kind::tuned;
  found[0].hold_out_gain = 4;
  found[1].kind = outcome_kind::default_stays;
  found[1].hold_out_gain = 0.5;  // measured and dropped: the default runs
  found[1].planned.text = "the worst";
  found[2].kind = outcome_kind::failed;
  const session_summary all = summary_of(found, 5);
  EXPECT_NEAR(all.mean_gain, 2, 1e-12);
  EXPECT_EQ(all.worst_gain, 1);
  EXPECT_EQ(all.worst_problem, "the worst");
  EXPECT_EQ(all.best_gain, 4);
  EXPECT_EQ(all.unmeasured, 2u);
}

TEST(Session, ARowThatIsWrongOnOtherInputsDoesNotReplaceTheDefault) {
  struct expectation {
    behaviour does;
    const char* reason;
  };
  for (const expectation& wrong : {
           expectation{behaviour::wrong_elsewhere, "out is 41, the reference says 42"},
           expectation{behaviour::wrong_by_definition_elsewhere, "the definition says no"},
       }) {
    const scratch_folder folder;
    session tuning(
        options_of(folder / "lookup.txt",
                   {{"standard", 2e-3}, {"fast", 1e-3, wrong.does}, {"reference", 1.4e-3}}));
    const auto found = run(tuning, {{"problem"}});
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].kind, outcome_kind::default_stays);
    EXPECT_EQ(found[0].reason, decision_reason::not_repeated);
    EXPECT_EQ(found[0].row, "standard");
    EXPECT_EQ(found[0].runner_up, "reference");
    EXPECT_EQ(found[0].hold_out_gain, 1);
    EXPECT_EQ(found[0].row_named("fast")->state, row_state::wrong);
    EXPECT_EQ(found[0].row_named("fast")->reason, wrong.reason);
    EXPECT_EQ(found[0].rows.back().row, "fast");
    EXPECT_TRUE(table_of(folder / "lookup.txt").records().empty());
  }
}

TEST(Session, WhereTheDefaultFailedTheFastestThatIsRightOnOtherInputsReplacesIt) {
  const scratch_folder folder;
  const session_options options =
      options_of(folder / "lookup.txt", {{"standard", 1e-3, behaviour::crashes},
                                         {"fast", 1e-3, behaviour::wrong_by_definition_elsewhere},
                                         {"next", 1.2e-3, behaviour::wrong_elsewhere},
                                         {"right", 1.3e-3},
                                         {"reference", 1.4e-3}});
  for (const bool from_log : {false, true}) {
    session tuning(options);
    const auto found = run(tuning, {{"problem"}});
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].skipped, from_log);
    EXPECT_EQ(found[0].kind, outcome_kind::tuned);
    EXPECT_EQ(found[0].reason, decision_reason::default_failed);
    EXPECT_EQ(found[0].row, "right");
    EXPECT_EQ(found[0].runner_up, "reference");
    EXPECT_EQ(found[0].rows.front().row, "right");
    EXPECT_EQ(found[0].row_named("fast")->reason, "the definition says no");
    EXPECT_EQ(found[0].row_named("next")->state, row_state::wrong);
  }
  const lookup_table table = table_of(folder / "lookup.txt");
  ASSERT_EQ(table.records().size(), 1u);
  EXPECT_EQ(table.records()[0].row, "right");
  EXPECT_EQ(table.records()[0].runner_up, "reference");
}

TEST(Session, FailsWhereTheDefaultFailedAndNoRowIsRightOnOtherInputs) {
  const scratch_folder folder;
  session tuning(
      options_of(folder / "lookup.txt", {{"standard", 1e-3, behaviour::refuses},
                                         {"fast", 1e-3, behaviour::wrong_by_definition_elsewhere},
                                         {"reference", 1e-3, behaviour::wrong_elsewhere}}));
  const auto found = run(tuning, {{"problem"}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, outcome_kind::failed);
  EXPECT_EQ(found[0].reason, decision_reason::nothing_timed);
  EXPECT_TRUE(found[0].row.empty());
  EXPECT_TRUE(found[0].runner_up.empty());
  EXPECT_EQ(summary_of(found, 1).failed_rows, 3u);
  EXPECT_TRUE(table_of(folder / "lookup.txt").records().empty());
}

}  // namespace
