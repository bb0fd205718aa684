// From times to rows: what is measured counts as measured, what failed serves nothing, and the
// lines that are written bring a build to the rows it was selected with.
#include "tools/tuner/selecting.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "pretended_problem.hpp"

namespace {

using namespace tessera::testing;
using tessera::lookup_record;

/// A trace of one problem per row list; the problems differ in the length of their text.
struct recorded {
  explicit recorded(std::vector<std::vector<pretended_row>> rows_of_problem)
      : rows(std::move(rows_of_problem)) {
    for (std::size_t n = 0; n < rows.size(); ++n) problems.push_back({std::string(n + 1, 'p')});
  }
  problem_opener opener() const {
    return [this](std::string_view text,
                  const conditions&) -> tessera::result<std::unique_ptr<tunable_problem>> {
      return std::unique_ptr<tunable_problem>(
          std::make_unique<pretended_problem>(std::string(text), rows[text.size() - 1]));
    };
  }
  /// Measures everything into the log of a table.
  void tune(const std::string& table) const {
    session_options options;
    options.open = opener();
    options.table = table;
    options.measuring = quick_rules();
    session tuning(options);
    const auto planned = tuning.plan(problems);
    ASSERT_TRUE(planned) << planned.message();
    const auto found = tuning.run(*planned);
    ASSERT_TRUE(found) << found.message();
  }
  trace_times times(const std::string& table) const {
    const measurement_log log(table);
    const auto made = times_of(problems, opener(), {}, log, tessera::lookup_tables{});
    EXPECT_TRUE(made) << made.message();
    return *made;
  }

  std::vector<std::vector<pretended_row>> rows;
  std::vector<weighted_problem> problems;
};

std::vector<std::string> names_of(const trace_times& trace, const selection_result& chosen) {
  std::vector<std::string> names;
  for (const std::size_t row : chosen.found.rows) names.push_back(trace.rows[row].name);
  return names;
}

using names = std::vector<std::string>;

TEST(Selecting, UsesMeasuredTimesAndFindsTheFewestRows) {
  const scratch_folder folder;
  const recorded trace({{{"a", 1.0e-3}, {"both", 1.05e-3}},
                        {{"b", 1.0e-3}, {"both", 1.05e-3}},
                        {{"a", 2.0e-3}, {"b", 2.0e-3}, {"both", 2.0e-3}}});
  trace.tune(folder / "lookup.txt");
  const trace_times times = trace.times(folder / "lookup.txt");
  EXPECT_EQ(times.measured, 7u);
  EXPECT_EQ(times.predicted, 0u);
  EXPECT_EQ(names_of(times, select_rows(times, 0.03)), (names{"both"}));
  EXPECT_EQ(names_of(times, select_rows(times, 0.01)), (names{"a", "b"}));
}

TEST(Selecting, SaysWhatIsPredictedAndScalesItToWhatWasMeasured) {
  const scratch_folder folder;
  recorded trace({{{"first", 5e-3}, {"second", 10e-3}}});
  trace.tune(folder / "lookup.txt");
  trace.rows[0].push_back({"new", 1e-3});  // predicted three times as slow as the first
  const trace_times times = trace.times(folder / "lookup.txt");
  EXPECT_EQ(times.measured, 2u);
  EXPECT_EQ(times.predicted, 1u);
  const auto row = [&](std::string_view name) {
    return static_cast<std::size_t>(
        std::find_if(times.rows.begin(), times.rows.end(),
                     [&](const priced_row& priced) { return priced.name == name; }) -
        times.rows.begin());
  };
  // Both measured rows take five times their predictions of 1 and 2 ms.
  EXPECT_EQ(times.times[0][row("new")].source, time_source::predicted);
  EXPECT_NEAR(times.times[0][row("new")].seconds, 15e-3, 0.2e-3);
  EXPECT_EQ(names_of(times, select_rows(times, 0.0)), (names{"first"}));
}

TEST(Selecting, ARowThatFailedServesNothing) {
  const scratch_folder folder;
  const recorded trace(
      {{{"standard", 2e-3}, {"wrong", 1e-4, behaviour::wrong}, {"reference", 3e-3}}});
  trace.tune(folder / "lookup.txt");
  const trace_times times = trace.times(folder / "lookup.txt");
  const selection_result chosen = select_rows(times, 10.0);
  EXPECT_EQ(names_of(times, chosen), (names{"standard"}));
  for (std::size_t r = 0; r < times.rows.size(); ++r) {
    if (times.rows[r].name != "wrong") continue;
    EXPECT_EQ(times.times[0][r].source, time_source::none);
  }
}

TEST(Selecting, WeightsAreCalls) {
  const scratch_folder folder;
  recorded trace({{{"a", 1e-3}, {"b", 1.5e-3}}, {{"b", 1e-3}, {"a", 1.5e-3}}});
  trace.problems[0].count = 100;
  trace.tune(folder / "lookup.txt");
  const trace_times times = trace.times(folder / "lookup.txt");
  EXPECT_EQ(names_of(times, select_rows(times, 0.03)), (names{"a"}));
  EXPECT_EQ(select_rows(times, 0.001).found.rows.size(), 2u);
}

TEST(Selecting, LinesAndListNameTheRowsThatWereSelected) {
  const scratch_folder folder;
  const recorded trace({{{"a", 1e-3}, {"b", 4e-3}}, {{"b", 1e-3}, {"a", 4e-3}}});
  trace.tune(folder / "lookup.txt");
  const trace_times times = trace.times(folder / "lookup.txt");
  const selection_result chosen = select_rows(times, 0.03);
  const auto lines = lookup_lines(times, chosen, "a test");
  ASSERT_EQ(lines.size(), 2u);
  for (const lookup_record& line : lines) {
    EXPECT_EQ(tessera::fault_of(line), "");
    EXPECT_NEAR(line.median_us, 1000, 20);
  }
  EXPECT_NE(lines[0].row, lines[1].row);
  const std::string list = row_list(times, chosen, 0.03);
  EXPECT_NE(list.find("\na\nb\n"), std::string::npos) << list;
  EXPECT_TRUE(list.starts_with("# ")) << list;
}

TEST(Selecting, SaysWhatTheCostModelWouldLose) {
  const scratch_folder folder;
  // The model prefers the first row of each problem; the second is twice as fast.
  const recorded trace({{{"a", 2e-3}, {"b", 1e-3}}, {{"a", 1e-3}, {"b", 2e-3}}});
  trace.tune(folder / "lookup.txt");
  const trace_times times = trace.times(folder / "lookup.txt");
  const selection_result chosen = select_rows(times, 0.03);
  EXPECT_NEAR(chosen.found.loss(), 0, 0.01);
  EXPECT_NEAR(chosen.heuristic_seconds / chosen.found.best_seconds, 1.5, 0.02);
}

}  // namespace
