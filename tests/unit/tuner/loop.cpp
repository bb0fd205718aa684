// The whole loop: record, tune, the next run takes the row from the table, select, row list.
#include <array>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/api/flash_attention.hpp>
#include <tessera/api/flash_plan.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/operations.hpp>
#include <tessera/families/attention/registry.hpp>
#include <tessera/lookup/table.hpp>
#include <tessera/runtime/record.hpp>
#include <tessera/runtime/tables.hpp>
#include <tessera/spec/problem_text.hpp>

#include "bench/support/workload.hpp"
#include "pretended_problem.hpp"
#include "tools/tuner/selecting.hpp"

namespace {

using namespace tessera::testing;
using namespace tessera;

constexpr std::string_view text = "flash_attention q=[1,130,4,64]f32 k=[1,130,2,64] causal=true";

// The row that the cost model prefers, made four times as slow: what tuning is for.
const instance* preferred_row = nullptr;

status launch_four_times(const attention_kernel_args& args, const launch_context& where) {
  for (int turn = 0; turn < 3; ++turn) {
    if (status done = preferred_row->launch(&args, where); !done) return done;
  }
  return preferred_row->launch(&args, where);
}

struct slow_default {
  slow_default() {
    const auto problem = open_problem(text, {.threads = 2});
    const std::string& name = (*problem)->candidates()[0].name;
    for (const instance& row : attention_registry()) {
      if (row.name == name) preferred_row = &row;
    }
    rows[0] = *preferred_row;
    rows[0].name = "attention.a_slow_one";  // predicted alike, and the first by name
    rows[0].launch = [](const void* args, const launch_context& where) {
      return launch_four_times(*static_cast<const attention_kernel_args*>(args), where);
    };
  }
  std::array<instance, 1> rows{};
};

std::string contents_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class Loop : public ::testing::Test {
 protected:
  ~Loop() override {
    EXPECT_TRUE(record_to(""));
    use_tables(nullptr);
  }

  void use(const std::string& table) {
    use_tables(load_lookup_tables({.user = table, .site = {}, .shipped = false}));
  }
  /// What an application does: plan and run.
  selection run() {
    const flash_problem problem = *parse_problem<flash_problem>(text);
    const auto made = plan(problem, with_rows({.threads = 2}, mine));
    EXPECT_TRUE(made) << made.message();
    const bench::workload_of work(problem);
    const status done = made->run(work.args());
    EXPECT_TRUE(done) << done.message();
    return made->choice();
  }

  const slow_default slow;
  const application_rows mine{std::span<const instance>(slow.rows)};
  const scratch_folder folder;
};

TEST_F(Loop, RecordTuneRunSelect) {
  const std::string trace = folder / "trace.txt";
  const std::string table = folder / "lookup.txt";
  use(table);
  ASSERT_TRUE(record_to(trace));
  for (int call = 0; call < 3; ++call) {
    const selection before = run();
    EXPECT_EQ(before.row(), "attention.a_slow_one");
    EXPECT_EQ(before.tier, selection_tier::heuristic);
  }
  ASSERT_TRUE(flush_recording());

  std::vector<weighted_problem> problems;
  std::istringstream lines(contents_of(trace));
  for (std::string line; std::getline(lines, line);) {
    const auto read = parse_trace_line(line);
    ASSERT_TRUE(read) << read.message();
    if (!read->problem.empty()) problems.push_back({read->problem, read->count});
  }
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_GE(problems[0].count, 1);

  session_options options;
  options.table = table;
  options.where = {.threads = 2, .rows = &mine};
  options.measuring = quick_rules();
  options.measuring.limit_seconds = 30;
  options.measuring.sample_seconds = 1e-3;
  options.measuring.deciding.noise_factor = 0;  // a factor of four shows on any machine
  session tuning(options);
  const auto planned = tuning.plan(problems);
  ASSERT_TRUE(planned) << planned.message();
  const auto found = tuning.run(*planned);
  ASSERT_TRUE(found) << found.message();
  ASSERT_EQ(found->front().kind, outcome_kind::tuned) << name_of(found->front().reason);
  EXPECT_GT(found->front().hold_out_gain, 1.5);
  EXPECT_EQ(found->front().planned.default_row, "attention.a_slow_one");

  use(table);  // as the next start of the program would
  const selection after = run();
  EXPECT_EQ(after.tier, selection_tier::persistent);
  EXPECT_EQ(after.row(), found->front().row);

  const measurement_log log(table);
  const auto times = times_of(problems, &open_problem, options.where, log, *tables_in_force());
  ASSERT_TRUE(times) << times.message();
  const selection_result chosen = select_rows(*times, 0.03);
  EXPECT_TRUE(chosen.found.exact);
  ASSERT_EQ(chosen.found.rows.size(), 1u);
  EXPECT_NE(times->rows[chosen.found.rows[0]].name, "attention.a_slow_one");
  EXPECT_NE(row_list(*times, chosen, 0.03).find(times->rows[chosen.found.rows[0]].name),
            std::string::npos);
  EXPECT_EQ(times->fallbacks, 0u);
}

}  // namespace
