// The chain behind calls and plans: tables, overlays, policies, rows of the application, traces,
// profilers.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/attention/operations.hpp>
#include <tessera/families/attention/registry.hpp>
#include <tessera/lookup/table.hpp>
#include <tessera/runtime/events.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/runtime/impl/memory.hpp>
#include <tessera/runtime/record.hpp>
#include <tessera/runtime/tables.hpp>
#include <tessera/spec/problem_text.hpp>
#include <tessera/tessera.hpp>

#include "small_call.hpp"

namespace tessera::testing {
namespace {

constexpr double tolerance = 1e-5;

flash_problem problem_of(small_call& call) {
  return tessera::problem_of(call.args());
}

/// Rows that run the call on this machine, cheapest first.
std::vector<std::string> rows_for(small_call& call) {
  std::vector<std::string> names;
  const auto all = explain(problem_of(call), {.threads = 1});
  for (const row_estimate& estimate : all->eligible) names.emplace_back(estimate.row);
  return names;
}

lookup_record line_for(small_call& call, const std::string& row) {
  const auto all = explain(problem_of(call), {.threads = 1});
  lookup_record line;
  line.family = attention_record.name;
  line.semantic_version = attention_record.semantic_version;
  line.code_version = attention_code_version(device_kind::cpu);
  line.device_class = all->device_class;
  line.identity = all->identity;
  line.size = all->size;
  line.row = row;
  line.median_us = 3;
  line.default_us = 4;
  line.samples = 5;
  line.mode = "eager hot";
  line.date = "2026-11-21T09:30:00Z";
  return line;
}

std::shared_ptr<const lookup_tables> tables_with(std::vector<lookup_record> lines) {
  return std::make_shared<const lookup_tables>(
      lookup_tables{lookup_table(std::move(lines)), lookup_table(), lookup_table()});
}

/// Puts the tables of the process back.
struct tables_restored {
  ~tables_restored() { use_tables(nullptr); }
};

struct heard {
  std::vector<event_kind> kinds;
  std::string last;
  event_sink sink{&deliver, this};

  static void deliver(void* receiver, const event& what) noexcept {
    static_cast<heard*>(receiver)->kinds.push_back(what.kind);
    static_cast<heard*>(receiver)->last = what.message;
  }
  auto count(event_kind kind) const { return std::count(kinds.begin(), kinds.end(), kind); }
};

TEST(Choosing, ATableInForceDecidesAndReloadingForgets) {
  const tables_restored restore;
  small_call call(9, 65, 2, 64);
  const auto rows = rows_for(call);
  ASSERT_GE(rows.size(), 2u);
  const std::string slow = rows.back();
  use_tables(tables_with({line_for(call, slow)}));
  heard listener;
  const context where{.threads = 1, .events = &listener.sink};
  ASSERT_TRUE(flash_attention(call.args(), {}, where));
  EXPECT_LT(call.error(), tolerance);
  EXPECT_EQ(listener.kinds, std::vector{event_kind::measured});
  EXPECT_NE(listener.last.find(slow + " (persistent: "), std::string::npos) << listener.last;
  EXPECT_NE(listener.last.find("user table, measured 3 us"), std::string::npos) << listener.last;
  const auto planned = plan(problem_of(call), {.threads = 1});
  EXPECT_EQ(planned->choice().row(), slow);
  EXPECT_EQ(planned->choice().tier, selection_tier::persistent);
  use_tables(tables_with({}));
  EXPECT_EQ(plan(problem_of(call), {.threads = 1})->choice().row(), rows.front());
  EXPECT_EQ(planned->choice().row(), slow) << "plans keep their row";
  reload_tables();
  EXPECT_NE(tables_in_force(), nullptr);
}

TEST(Choosing, AStaleLineIsToldOnceAndNotUsed) {
  const tables_restored restore;
  small_call call(11, 65, 2, 64);
  lookup_record line = line_for(call, rows_for(call).back());
  line.code_version = "0000000000000000";
  use_tables(tables_with({line}));
  heard listener;
  for (int i = 0; i < 3; ++i) {
    forget_selections();
    ASSERT_TRUE(flash_attention(call.args(), {}, {.threads = 1, .events = &listener.sink}));
  }
  EXPECT_EQ(listener.count(event_kind::stale_row), 1);
  EXPECT_EQ(listener.count(event_kind::heuristic), 3);
}

TEST(Choosing, OverlaysHoldForCallsPlansAndThreads) {
  small_call call(9, 33, 2, 64);
  const auto rows = rows_for(call);
  const overlay rules = *parse_overlay("flash_attention: q_len=9 => " + rows.back());
  const auto row = [&](const context& where = {.threads = 1}) {
    return std::string(plan(problem_of(call), where)->choice().row());
  };
  EXPECT_EQ(row(), rows.front());
  EXPECT_EQ(row({.threads = 1, .overlays = &rules}), rows.back());
  {
    const overlay_scope scope(rules);
    EXPECT_EQ(row(), rows.back());
    std::thread([&] { EXPECT_EQ(row(), rows.front()); }).join();
    heard listener;
    ASSERT_TRUE(flash_attention(call.args(), {}, {.threads = 1, .events = &listener.sink}));
    EXPECT_LT(call.error(), tolerance);
  }
  EXPECT_EQ(row(), rows.front());
  EXPECT_EQ(set_process_overlay(&rules), nullptr);
  EXPECT_EQ(row(), rows.back());
  EXPECT_EQ(set_process_overlay(nullptr), &rules);
  EXPECT_EQ(row(), rows.front());
}

TEST(Choosing, PoliciesComeFromTheCallTheThreadOrTheProcess) {
  const tables_restored restore;
  small_call call(9, 34, 2, 64);
  const auto rows = rows_for(call);
  use_tables(tables_with({line_for(call, rows.back())}));
  const selection_policy alone{.tables = table_use::none};
  const auto row = [&](const context& where = {.threads = 1}) {
    return std::string(plan(problem_of(call), where)->choice().row());
  };
  EXPECT_EQ(row(), rows.back());
  EXPECT_EQ(row({.threads = 1, .policy = alone}), rows.front());
  const selection_policy before = set_process_policy(alone);
  EXPECT_EQ(row(), rows.front());
  {
    const policy_scope scope(before);
    EXPECT_EQ(row(), rows.back());
  }
  set_process_policy(before);
  EXPECT_EQ(row(), rows.back());
}

TEST(Choosing, RowsOfTheApplicationRun) {
  small_call call(9, 35, 2, 64);
  instance mine = *plan(problem_of(call), {.threads = 1})->choice().instance;
  mine.name = "attention.mine";
  const std::array rows{mine};
  const application_rows own(rows);
  const context where = with_rows({.row = "attention.mine", .threads = 1}, own);
  ASSERT_TRUE(flash_attention(call.args(), {}, where));
  EXPECT_LT(call.error(), tolerance);
  EXPECT_EQ(plan(problem_of(call), where)->choice().instance, rows.data());
  const auto all = explain(problem_of(call), with_rows({.threads = 1}, own));
  EXPECT_TRUE(
      std::any_of(all->eligible.begin(), all->eligible.end(),
                  [](const row_estimate& estimate) { return estimate.row == "attention.mine"; }));
  EXPECT_EQ(flash_attention(call.args(), {}, {.row = "attention.mine"}).code(),
            status_code::unknown_row);
}

std::vector<trace_line> lines_of(const std::string& path) {
  std::vector<trace_line> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(*parse_trace_line(line));
  return lines;
}

TEST(Recording, CountsDistinctProblemsOfCallsAndPlannedRuns) {
  const std::string path =
      (std::filesystem::temp_directory_path() / "tessera_recording_test.txt").string();
  std::filesystem::remove(path);
  small_call call(9, 36, 2, 64);
  small_call other(10, 36, 2, 64);
  ASSERT_TRUE(flash_attention(call.args(), {}, {.threads = 1})) << "remembered before";
  EXPECT_EQ(recording_file(), "");
  ASSERT_TRUE(record_to(path));
  EXPECT_EQ(recording_file(), path);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(flash_attention(call.args(), {.softmax_scale = 0.1 * (i + 1)}, {.threads = 1}));
  }
  const auto planned = plan(problem_of(other), {.threads = 1});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(planned->run(other.args()));
  ASSERT_TRUE(flash_attention(call.args(), {}, {.row = rows_for(call).back(), .threads = 1}));
  EXPECT_FALSE(std::filesystem::exists(path)) << "nothing is written before it is asked for";
  ASSERT_TRUE(flush_recording());
  ASSERT_TRUE(flush_recording());
  std::int64_t calls = 0;
  std::int64_t runs = 0;
  for (const trace_line& line : lines_of(path)) {
    const auto problem = parse_problem<flash_problem>(line.problem);
    ASSERT_TRUE(problem) << problem.message();
    (problem->tensors.q.extent[1] == 9 ? calls : runs) += line.count;
  }
  EXPECT_EQ(calls, 6);
  EXPECT_EQ(runs, 3);
  ASSERT_TRUE(planned->run(other.args()));
  ASSERT_TRUE(record_to(""));
  ASSERT_TRUE(flash_attention(call.args(), {}, {.threads = 1}));
  runs = 0;
  for (const trace_line& line : lines_of(path)) {
    if (parse_problem<flash_problem>(line.problem)->tensors.q.extent[1] == 10) runs += line.count;
  }
  EXPECT_EQ(runs, 4) << "stopping writes the rest, and nothing is counted afterwards";
  std::filesystem::remove(path);
}

TEST(Properties, ReadOnlyFoldersMissingHomeAndFullDisksLeaveTheDefaultSelection) {
  const tables_restored restore;
  small_call call(9, 37, 2, 64);
  const std::string best = rows_for(call).front();
  const auto row = [&] {
    return std::string(plan(problem_of(call), {.threads = 1})->choice().row());
  };
  const auto unset = [](const char*) -> const char* { return nullptr; };
  for (const char* folder : {"", "/proc/self", "/dev/null", "/no/such/folder", "/root\x01"}) {
    use_tables(load_lookup_tables(locate_tables(folder, unset)));
    EXPECT_EQ(row(), best) << folder;
  }
  for (const char* file : {"/dev/full", "/proc/self/nothing", "/no/such/folder/trace"}) {
    ASSERT_TRUE(record_to(file));
    ASSERT_TRUE(flash_attention(call.args(), {}, {.threads = 1})) << file;
    EXPECT_EQ(flush_recording().code(), status_code::io) << file;
    EXPECT_EQ(flush_recording().message().find(file), 0u);
    EXPECT_EQ(row(), best);
    const std::string kept = (std::filesystem::temp_directory_path() / "tessera_kept.txt").string();
    EXPECT_FALSE(record_to(kept)) << "what could not be written is kept";
    std::filesystem::remove(kept);
    ASSERT_EQ(recording_file(), file);
    discard_recording();
    EXPECT_EQ(recording_file(), "");
  }
}

struct ranges {
  std::vector<std::string> begun;
  int open = 0;
  profiler to{&begin, &end, this, range_names::row};

  static void begin(void* state, std::string_view name) noexcept {
    auto& self = *static_cast<ranges*>(state);
    self.begun.emplace_back(name);
    ++self.open;
  }
  static void end(void* state) noexcept { --static_cast<ranges*>(state)->open; }
};

TEST(Profiling, RangesAreNamedAfterRows) {
  small_call call(9, 38, 2, 64);
  const auto planned = plan(problem_of(call), {.threads = 1});
  const std::string row(planned->choice().row());
  ranges seen;
  EXPECT_EQ(set_profiler(&seen.to), nullptr);
  ASSERT_TRUE(planned->run(call.args()));
  seen.to.names = range_names::full;
  ASSERT_TRUE(flash_attention(call.args(), {}, {.threads = 1}));
  EXPECT_EQ(set_profiler(nullptr), &seen.to);
  ASSERT_TRUE(planned->run(call.args()));
  EXPECT_EQ(seen.begun, (std::vector<std::string>{
                            row, row + " flash_attention q=[1,9,2,64]f32 k=[1,38,2,64]"}));
  EXPECT_EQ(seen.open, 0);
}

TEST(Explaining, ADeviceThatIsNotThereSaysWhatItWouldSay) {
  small_call call(9, 39, 2, 64);
  const device_facts here = this_device();
  const auto of_file = explain(problem_of(call), {.threads = 2}, &here);
  const auto of_this = explain(problem_of(call), {.threads = 2});
  ASSERT_TRUE(of_file && of_this);
  EXPECT_EQ(to_text(*of_file, 3), to_text(*of_this, 3));
  EXPECT_EQ(of_file->device_class, of_this->device_class);
  device_facts elsewhere;
  elsewhere.highest = backend::cpu_avx2;
  elsewhere.physical_cores = elsewhere.available_threads = 48;
  const auto of_other = explain(problem_of(call), {}, &elsewhere);
  EXPECT_EQ(of_other->device_class, "cpu_avx2.l1d=32K.l2=1M.cores=64");
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    EXPECT_TRUE(of_other->size.ends_with(" threads=64")) << of_other->size;
    EXPECT_NE(of_other->reason_text.find("for 48 threads"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::testing
