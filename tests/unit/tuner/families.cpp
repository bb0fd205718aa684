// Real families: candidates are rows that can run, real rows pass the gate, planted ones do not.
#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/api/flash_attention.hpp>
#include <tessera/api/flash_plan.hpp>
#include <tessera/families/attention/family.hpp>
#include <tessera/families/attention/operations.hpp>
#include <tessera/families/attention/registry.hpp>
#include <tessera/families/attention/rules.hpp>
#include <tessera/runtime/device_facts.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/problem_text.hpp>

#include "pretended_problem.hpp"
#include "tools/tuner/tuner.hpp"

namespace {

using namespace tessera::testing;
using namespace tessera;

constexpr std::array<std::string_view, 12> small_problems{
    "flash_attention q=[1,65,4,64]f32 k=[1,65,2,64] causal=true",
    "flash_attention q=[2,33,8,128]bf16 k=[2,300,2,128] causal=true window_left=40",
    "flash_attention q=[3,1,8,128]bf16 k=[3,500,8,128] seqlens_k=[3]i32",
    "flash_attention q=[100,4,64]f16 k=[100,4,64] cu_seqlens_q=[5]i32 cu_seqlens_k=[5]i32",
    "flash_attention q=[1,20,2,96]f32 k=[1,30,2,96] bias_pre=[1,1,20,30]f32",
    "flash_attention q=[1,20,2,128]f32 k=[1,30,2,128] mask=[1,1,20,30]u8",
    "flash_attention q=[1,64,2,128]f32 k=[1,64,2,128] q_segment_ids=[1,64]i32",
    "flash_attention q=[1,16,4,64]bf16 k=[1,16,4,64] sinks=[4,1]f32 logits_soft_cap=30",
    "flash_attention q=[1,16,4,64]f32 k=[1,16,4,64] dropout_probability=0.2",
    "flash_attention q=[1,16,4,64]f32 k=[1,16,4,64] normalize=false",
    "attention q=[1,16,4,64]f32 k=[1,16,4,64] weights=[1,4,16,16]f32",
    "scaled_dot_product_attention q=[1,40,4,256]f16 k=[1,50,4,256] causal=true",
};

std::unique_ptr<tunable_problem> opened(std::string_view text, const conditions& where = {}) {
  auto made = open_problem(text, where);
  EXPECT_TRUE(made) << text << ": " << made.message();
  return made ? *std::move(made) : nullptr;
}

constexpr std::array<std::string_view, 6> pooling_problems{
    "mean_pooling x=[3,50,96]f32",
    "mean_pooling x=[2,40,64]bf16 mask=[2,40]u8",
    "mean_pooling x=[100,64]f16 cu_seqlens=[6]i32",
    "mean_pooling_chunks x=[1,100,4,32]bf16 cu_seqlens=[4]i32 chunk_size=16",
    "mean_pooling_backward x=[2,30,64]f32",
    "mean_pooling_chunks_backward x=[2,50,2,32]bf16 chunk_size=8",
};

const instance& instance_named(std::string_view name) {
  for (const instance& row : attention_registry()) {
    if (row.name == name) return row;
  }
  throw std::runtime_error("no row " + std::string(name));
}

TEST(Property11, CandidateGeneratorYieldsOnlyValidConfigsForEveryOpArchAndDtype) {
  for (const backend highest : all_backends) {
    if (!is_cpu(highest)) continue;
    device_facts device = this_device();
    device.highest = highest;
    for (const std::string_view text : small_problems) {
      const auto problem = opened(text, {.device = &device});
      ASSERT_NE(problem, nullptr);
      const attention_demand demand = demand_of(*parse_problem<flash_problem>(text));
      ASSERT_FALSE(problem->candidates().empty()) << text;
      for (const candidate& row : problem->candidates()) {
        const attention_config& config = instance_named(row.name).config_as<attention_config>();
        EXPECT_TRUE(is_legal_in_table(config)) << row.name;
        EXPECT_TRUE(device.runs(config.target)) << row.name;
        EXPECT_TRUE(runs(config, demand)) << row.name << ' ' << text;
        EXPECT_GT(row.predicted_seconds, 0) << row.name;
      }
    }
  }
}

TEST(Candidates, TheDefaultIsWhatTheChainTakesWithoutATable) {
  for (const std::string_view text : small_problems) {
    const auto problem = opened(text, {.threads = 2});
    context without_tables{.threads = 2};
    without_tables.policy = selection_policy{.tables = table_use::none};
    const auto chosen = plan(*parse_problem<flash_problem>(text), without_tables);
    ASSERT_TRUE(chosen) << chosen.message();
    EXPECT_EQ(problem->candidates()[problem->default_row()].name, chosen->choice().row()) << text;
  }
}

TEST(Gate, LetsEveryRowOfTheBuildIn) {
  measuring_rules rules = quick_rules();
  rules.limit_seconds = 60;
  std::vector<std::string_view> problems(small_problems.begin(), small_problems.end());
  problems.insert(problems.end(), pooling_problems.begin(), pooling_problems.end());
  for (const std::string_view text : problems) {
    const auto problem = opened(text, {.threads = 2});
    ASSERT_NE(problem, nullptr);
    ASSERT_TRUE(problem->make_inputs(1));
    const auto checked = check_rows(*problem, shortlist(*problem, 99), rules);
    ASSERT_TRUE(checked) << checked.message();
    for (const measured_row& row : *checked) {
      EXPECT_EQ(row.state, row_state::timed)
          << text << '\n'
          << problem->candidates()[row.row].name << ": " << row.reason;
      EXPECT_GT(row.first_seconds, 0);
    }
  }
}

// Planted rows: launchers around a real one. A plain function, as a launcher is.
const instance* real_row = nullptr;

status launch_off_by_a_little(const attention_kernel_args& args, const launch_context& where) {
  if (status done = real_row->launch(&args, where); !done) return done;
  auto* const out = static_cast<float*>(args.out);
  out[7] += 1e-3f;  // one element of one row
  return {};
}

status launch_beyond_the_output(const attention_kernel_args& args, const launch_context& where) {
  if (status done = real_row->launch(&args, where); !done) return done;
  args.lse.data[-1] = 0.0f;
  return {};
}

status launch_never_ending(const attention_kernel_args&, const launch_context&) {
  std::this_thread::sleep_for(std::chrono::hours(1));
  return {};
}

std::size_t no_workspace(const attention_kernel_args&, int) {
  return 0;
}

std::size_t workspace_of_real_row(const attention_kernel_args& args, int threads) {
  return real_row->workspace_bytes(&args, threads);
}

template <auto Launch, auto WorkspaceBytes = &workspace_of_real_row>
instance planted(std::string_view name, const attention_config& config) {
  return instance_of<kernels::entry_functions<WorkspaceBytes, Launch>>("attention", name, config);
}

struct planted_rows {
  planted_rows() {
    const auto problem = opened(text, {.threads = 2});
    real_row = &instance_named(problem->candidates()[0].name);
    const auto& config = real_row->config_as<attention_config>();
    rows[0] = planted<&launch_off_by_a_little>("attention.planted.off_by_a_little", config);
    rows[1] = planted<&launch_beyond_the_output>("attention.planted.beyond_the_output", config);
    rows[2] =
        planted<&launch_never_ending, &no_workspace>("attention.planted.never_ending", config);
  }

  static constexpr std::string_view text =
      "flash_attention q=[1,65,4,64]f32 k=[1,65,2,64] causal=true";
  std::array<instance, 3> rows{};
};

TEST(Property12, RealFamilyRefusesAPlantedWrongInstanceAndAPlantedHangingOne) {
  const planted_rows planted;
  const application_rows mine{std::span<const instance>(planted.rows)};
  const scratch_folder folder;
  session_options options;
  options.table = folder / "lookup.txt";
  options.where = {.threads = 2, .rows = &mine};
  options.measuring = quick_rules();
  options.measuring.most_candidates = 99;
  options.measuring.limit_seconds = 3;
  session tuning(options);
  const auto planned = tuning.plan({{std::string(planted_rows::text)}});
  ASSERT_TRUE(planned) << planned.message();
  const auto found = tuning.tune(planned->front());
  ASSERT_TRUE(found) << found.message();
  const auto state = [&](std::string_view row) { return found->row_named(row)->state; };
  const auto reason = [&](std::string_view row) { return found->row_named(row)->reason; };
  EXPECT_EQ(state("attention.planted.off_by_a_little"), row_state::wrong);
  EXPECT_NE(reason("attention.planted.off_by_a_little").find("out: scaled error"),
            std::string::npos)
      << reason("attention.planted.off_by_a_little");
  EXPECT_EQ(state("attention.planted.beyond_the_output"), row_state::wrong);
  EXPECT_EQ(reason("attention.planted.beyond_the_output"), "writes beyond lse");
  EXPECT_EQ(state("attention.planted.never_ending"), row_state::timeout);
  EXPECT_FALSE(found->row.starts_with("attention.planted"));
  EXPECT_EQ(state(found->row), row_state::timed);
}

TEST(Inputs, LengthsAreRaggedAndValuesAreNotZero) {
  const auto problem = opened(small_problems[3]);
  ASSERT_TRUE(problem->make_inputs(5));
  ASSERT_TRUE(problem->prepare(0));
  ASSERT_TRUE(problem->run(0));
  std::vector<std::byte> first(problem->result_bytes());
  problem->copy_results(first);
  ASSERT_TRUE(problem->make_inputs(6));
  ASSERT_TRUE(problem->prepare(0));
  ASSERT_TRUE(problem->run(0));
  std::vector<std::byte> second(problem->result_bytes());
  problem->copy_results(second);
  EXPECT_NE(first, second);
  EXPECT_NE(std::count(first.begin(), first.end(), std::byte{0}),
            static_cast<std::ptrdiff_t>(first.size()));
}

TEST(OpenProblem, RefusesUnknownOperationsAndIllFormedProblems) {
  const auto unknown = open_problem("flash_attentoin q=[1,1,1,64]f32 k=[1,1,1,64]");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.message().find("flash_attention, "), std::string::npos) << unknown.message();
  const auto uneven = open_problem("flash_attention q=[1,1,3,64]f32 k=[1,1,2,64]");
  ASSERT_FALSE(uneven);
  EXPECT_NE(uneven.message().find('3'), std::string::npos) << uneven.message();
}

TEST(OnlineTuner, AnswersTheAutotuneTierAndRemembersInTheTable) {
  const scratch_folder folder;
  online_tuner tuner({.seconds = 2,
                      .limit_seconds = 20,
                      .accept_disturbed = true,
                      .table = folder / "lookup.txt"});
  const flash_problem problem = *parse_problem<flash_problem>(small_problems[0]);
  context context{.threads = 2, .tuner = &tuner.hook()};
  context.policy = selection_policy{.tables = table_use::none, .autotune = autotune_use::on_miss};
  const auto tuned = plan(problem, context);
  ASSERT_TRUE(tuned) << tuned.message();
  EXPECT_EQ(tuned->choice().tier, selection_tier::autotune) << tuner.last_refusal();
  EXPECT_TRUE(std::filesystem::exists(folder / "measurements/attention.txt"));
  context.policy->autotune = autotune_use::never;
  const auto predicted = plan(problem, context);
  ASSERT_TRUE(predicted) << predicted.message();
  EXPECT_EQ(predicted->choice().tier, selection_tier::heuristic);
}

}  // namespace
