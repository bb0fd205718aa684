// Policies: values in force, and what they do to a choice.
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "measured.hpp"

namespace tessera::testing {
namespace {

/// Every policy there is.
std::vector<selection_policy> every_policy() {
  std::vector<selection_policy> all;
  for (const auto on_ineligible : {ineligible_override::error, ineligible_override::fall_through}) {
    for (const auto tables : {table_use::all, table_use::shipped_only, table_use::none}) {
      for (const auto nearest : {nearest_use::declared, nearest_use::never}) {
        for (const auto autotune : {autotune_use::never, autotune_use::on_miss}) {
          for (const auto generic : {generic_use::allow, generic_use::refuse}) {
            for (const auto promise :
                 {bits_promise::none, bits_promise::deterministic, bits_promise::batch_invariant}) {
              all.push_back({on_ineligible, tables, nearest, autotune, generic, promise});
            }
          }
        }
      }
    }
  }
  return all;
}

bool take_first(void*, const autotune_request&, autotune_answer& answer) noexcept {
  answer = {.row = 0, .median_us = 1};
  return true;
}

TEST(Properties, OverrideWinsUnderEveryPolicyValueAndLeavesNoTrace) {
  selection_memory memory;
  shared_memory shared;
  const autotuner tuner{&take_first, nullptr};
  question question(small_prompt);
  const lookup_tables tables =
      tables_of({line_for(question, "attention.cpu_avx512.f32.dany.every.896x256")});
  question.tables = &tables;
  question.tuner = &tuner;
  for (const selection_policy& policy : every_policy()) {
    question.policy = policy;
    question.memory = nullptr;
    question.process_memory = nullptr;
    question.row_of_call = {};
    const std::string before(question.row());
    question.memory = &memory;
    question.process_memory = &shared;
    for (const std::string_view row :
         {small_prompt_avx2, std::string_view("attention.cpu_generic.f32.dany.every.256x256")}) {
      question.row_of_call = row;
      for (int i = 0; i < 2; ++i) {
        const auto chosen = question.answer();
        ASSERT_TRUE(chosen) << chosen.message();
        EXPECT_EQ(chosen->row(), row);
        EXPECT_EQ(chosen->tier, selection_tier::override);
        EXPECT_FALSE(chosen->remembered);
      }
    }
    question.row_of_call = {};
    const auto after = question.answer();
    ASSERT_TRUE(after) << after.message();
    EXPECT_FALSE(after->remembered);
    EXPECT_EQ(after->row(), before);
  }
}

TEST(Policy, IsAValueOfTheProcessAndOfScopes) {
  const selection_policy before = process_policy();
  const selection_policy strict{.tables = table_use::none};
  const selection_policy loose{.on_ineligible = ineligible_override::fall_through};
  EXPECT_EQ(policy_in_force(), before);
  EXPECT_EQ(set_process_policy(strict), before);
  EXPECT_EQ(policy_in_force(), strict);
  {
    const policy_scope outer(loose);
    EXPECT_EQ(policy_in_force(), loose);
    {
      const policy_scope inner(strict);
      EXPECT_EQ(policy_in_force(), strict);
    }
    EXPECT_EQ(policy_in_force(), loose);
    std::thread([&] { EXPECT_EQ(policy_in_force(), strict); }).join();
  }
  EXPECT_EQ(set_process_policy(before), strict);
}

TEST(Policy, PromisesKeepRowsOut) {
  std::vector<instance> some(rows());
  const question question(small_prompt);
  const std::string best(question.row());
  for (instance& row : some) {
    if (row.name == best) row.properties.deterministic = determinism::none;
    if (row.name == small_prompt_avx2) row.properties.batch_invariant = batch_invariance::none;
  }
  inquiry asked = question.asked();
  asked.instances = some;
  EXPECT_EQ(select(asked)->row(), best);
  for (const bits_promise promise : {bits_promise::deterministic, bits_promise::batch_invariant}) {
    asked.policy.promise = promise;
    EXPECT_NE(select(asked)->row(), best);
    asked.row_of_call = best;
    EXPECT_EQ(select(asked).message(),
              "context.row: " + best +
                  " cannot run this problem: the policy asks for deterministic results, which the "
                  "row does not promise");
    asked.row_of_call = {};
  }
  asked.row_of_call = small_prompt_avx2;
  EXPECT_EQ(select(asked).message(),
            "context.row: " + std::string(small_prompt_avx2) +
                " cannot run this problem: the policy asks for batch invariant results, which the "
                "row does not promise");
  asked.policy.promise = bits_promise::deterministic;
  EXPECT_EQ(select(asked)->row(), small_prompt_avx2);
}

TEST(Policy, ExplanationsSayWhatPromisesCost) {
  std::vector<instance> some(rows());
  const question question(small_prompt);
  const std::string best(question.row());
  inquiry asked = question.asked();
  asked.instances = some;
  EXPECT_EQ(explain(asked).reason_text.find("results cost"), std::string::npos);
  asked.policy.promise = bits_promise::deterministic;
  EXPECT_TRUE(explain(asked).reason_text.ends_with("; deterministic results cost nothing"));
  for (instance& row : some) {
    if (row.name == best) row.properties.deterministic = determinism::none;
  }
  const explanation all = explain(asked);
  const demand_facts facts = asked.facts();
  const std::string without =
      duration_text(asked.predicted(*asked.row_named(best), facts)) + " by " + best;
  const std::string with = duration_text(all.eligible.front().seconds) + " predicted, " + without;
  EXPECT_TRUE(all.reason_text.ends_with(" times the time: " + with)) << all.reason_text;
  EXPECT_NE(all.reason_text.find("; deterministic results cost "), std::string::npos);
  asked.policy.promise = bits_promise::batch_invariant;
  EXPECT_NE(explain(asked).reason_text.find("; batch invariant results cost "), std::string::npos);
}

TEST(Policy, BatchInvariantChoicesDoNotSeeTheBatch) {
  const auto row = [](int batch, bits_promise promise) {
    const std::string size = "[" + std::to_string(batch) + ",600,2,128]";
    question question("flash_attention q=" + size + "f32 k=" + size);
    question.policy.promise = promise;
    return std::string(question.row());
  };
  for (const int batch : {2, 3, 8, 64, 1000}) {
    EXPECT_EQ(row(batch, bits_promise::batch_invariant), row(1, bits_promise::batch_invariant));
  }
  const auto packed = [](int sequences, int tokens) {
    const std::string size = "[" + std::to_string(tokens) + ",8,64]";
    const std::string offsets = "[" + std::to_string(sequences + 1) + "]i32";
    question question("flash_attention q=" + size + "f32 k=" + size + " cu_seqlens_q=" + offsets +
                      " cu_seqlens_k=" + offsets);
    question.policy.promise = bits_promise::batch_invariant;
    return std::string(question.row());
  };
  EXPECT_EQ(packed(1, 900), packed(7, 60));
}

TEST(Policy, GenericRowsCanBeRefused) {
  question odd("flash_attention q=[1,64,8,96]f32 k=[1,64,8,96]");
  EXPECT_EQ(odd.answer()->reason, selection_reason::generic_fallback);
  odd.policy.generic = generic_use::refuse;
  EXPECT_EQ(odd.answer().code(), status_code::no_row);
  EXPECT_NE(odd.answer().message().find("; the policy refuses generic rows; the row list lacks "
                                        "attention.cpu_avx512.f32.d96.896x256"),
            std::string::npos)
      << odd.answer().message();
  question even(small_prompt);
  even.policy.generic = generic_use::refuse;
  EXPECT_TRUE(even.answer());
}

struct tuned {
  int calls = 0;
  bool answers = true;
  std::string wanted{};
  std::string hint{}, fallback{};

  static bool tune(void* state, const autotune_request& asked, autotune_answer& answer) noexcept {
    auto& self = *static_cast<tuned*>(state);
    ++self.calls;
    self.hint = asked.hint;
    self.fallback = asked.default_row;
    for (std::size_t i = 0; i < asked.rows.size(); ++i) {
      if (asked.rows[i] == self.wanted) answer = {.row = i, .median_us = 7};
    }
    return self.answers;
  }
};

TEST(Autotune, IsAskedOnlyWhereThePolicyAllowsItAndNothingIsMeasured) {
  tuned state{.wanted = std::string(small_prompt_avx2)};
  const autotuner tuner{&tuned::tune, &state};
  question question(small_prompt);
  question.tuner = &tuner;
  const std::string best(question.row());
  EXPECT_EQ(state.calls, 0);
  question.policy.autotune = autotune_use::on_miss;
  const auto chosen = question.answer();
  EXPECT_EQ(state.calls, 1);
  EXPECT_EQ(chosen->row(), small_prompt_avx2);
  EXPECT_EQ(chosen->tier, selection_tier::autotune);
  EXPECT_DOUBLE_EQ(chosen->measured_seconds, 7e-6);
  EXPECT_EQ(state.fallback, best);
  const explanation all = explain(question.asked(), &*chosen);
  EXPECT_EQ(all.row, small_prompt_avx2);
  EXPECT_EQ(all.tier, selection_tier::autotune);
  EXPECT_EQ(state.calls, 1) << "explaining measures nothing";
  lookup_record old = line_for(question, small_prompt_avx2);
  old.code_version = "old";
  const lookup_tables stale = tables_of({old});
  question.tables = &stale;
  EXPECT_EQ(question.answer()->tier, selection_tier::autotune);
  EXPECT_EQ(state.hint, small_prompt_avx2);
  const lookup_tables fresh = tables_of({line_for(question, best)});
  question.tables = &fresh;
  EXPECT_EQ(question.answer()->tier, selection_tier::persistent);
  EXPECT_EQ(state.calls, 2);
  question.tables = nullptr;
  state.answers = false;
  EXPECT_EQ(question.answer()->tier, selection_tier::heuristic);
}

TEST(Properties, HeuristicResultsNeverReachDiskAndEnablingTuningLaterIsEffective) {
  selection_memory memory;
  shared_memory shared;
  tuned state{.wanted = std::string(small_prompt_avx2)};
  const autotuner tuner{&tuned::tune, &state};
  question question(small_prompt);
  question.memory = &memory;
  question.process_memory = &shared;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(question.answer()->tier, selection_tier::heuristic);
  EXPECT_TRUE(question.answer()->remembered);
  // A choice has no way to a file: lookup tables in memory are constant, and the store is another
  // library. What is remembered must not keep the tuner from being asked.
  question.policy.autotune = autotune_use::on_miss;
  EXPECT_EQ(question.answer()->tier, selection_tier::heuristic) << "allowed, but there is no tuner";
  question.tuner = &tuner;
  EXPECT_EQ(question.answer()->tier, selection_tier::autotune);
  EXPECT_EQ(question.answer()->row(), small_prompt_avx2);
  EXPECT_TRUE(question.answer()->remembered);
  EXPECT_EQ(state.calls, 1);
}

}  // namespace
}  // namespace tessera::testing
