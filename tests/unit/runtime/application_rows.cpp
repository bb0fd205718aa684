// Rows of an application: asked like those of the build.
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "measured.hpp"

namespace tessera::testing {
namespace {

constexpr std::string_view prompt_of_d96 = "flash_attention q=[1,64,8,96]f32 k=[1,64,8,96]";

constexpr attention_config d96 =
    resolved({.target = backend::cpu_avx512, .head_dim = 96, .block_q = 112, .block_kv = 128});

instance row_of_ours(const attention_config& config = d96) {
  return {.name = "mine.d96", .family = "attention", .target = config.target, .config = &config};
}

TEST(ApplicationRows, TakePartInEveryTier) {
  const std::array mine{row_of_ours()};
  const application_rows own(mine);
  question question(prompt_of_d96);
  EXPECT_EQ(question.answer()->reason, selection_reason::generic_fallback);
  question.own_rows = &own;
  EXPECT_EQ(question.row(), "mine.d96");
  EXPECT_EQ(question.answer()->instance, mine.data());
  question.row_of_call = "mine.*";
  EXPECT_EQ(question.row(), "mine.d96");
  question.row_of_call = {};
  const explanation all = explain(question.asked());
  EXPECT_EQ(all.row, "mine.d96");
  EXPECT_EQ(all.eligible.size() + all.rejected.size(), rows().size() + 1);
  const lookup_tables tables = tables_of({line_for(question, "mine.d96")});
  question.tables = &tables;
  EXPECT_EQ(question.answer()->tier, selection_tier::persistent);
  question.own_rows = nullptr;
  EXPECT_EQ(question.answer()->tier, selection_tier::heuristic) << "the line is stale without them";
}

TEST(ApplicationRows, AreNotRememberedForCallsWithoutThem) {
  selection_memory memory;
  const std::array mine{row_of_ours()};
  question question(prompt_of_d96);
  question.memory = &memory;
  for (int i = 0; i < 2; ++i) {
    const application_rows own(mine);
    question.own_rows = &own;
    EXPECT_FALSE(question.answer()->remembered) << "other rows, at the same address or not";
    EXPECT_TRUE(question.answer()->remembered);
  }
  question.own_rows = nullptr;
  EXPECT_NE(question.row(), "mine.d96");
}

TEST(ApplicationRows, OfSeveralFamiliesStandInOneList) {
  instance foreign;
  foreign.name = "mine.pooling";
  foreign.family = "mean_pooling";  // without a config: must not be looked at
  const std::array mine{foreign, row_of_ours(), foreign};
  const application_rows own(mine);
  const application_rows same(mine);
  EXPECT_NE(own.number(), same.number());
  question question(prompt_of_d96);
  question.own_rows = &own;
  EXPECT_EQ(question.answer()->instance, &mine[1]);
  EXPECT_EQ(question.asked().row_count(), rows().size() + 1);
  EXPECT_EQ(question.asked().row_named("mine.pooling"), nullptr);
  question.row_of_call = "mine.pooling";
  EXPECT_EQ(question.answer().code(), status_code::unknown_row);
}

TEST(ApplicationRows, WinOverRowsOfTheSameName) {
  question question("flash_attention q=[1,64,8,64]f32 k=[1,64,8,64]");
  attention_config d64 = d96;
  d64.head_dim = d64.v_head_dim = 64;
  instance same = row_of_ours(d64);
  same.name = question.answer()->instance->name;
  const std::array mine{same};
  const application_rows own(mine);
  question.own_rows = &own;
  question.row_of_call = same.name;
  EXPECT_EQ(question.answer()->instance, mine.data());
}

}  // namespace
}  // namespace tessera::testing
