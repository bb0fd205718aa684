// Rows of an application: asked like those of the build.
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "measured.hpp"

namespace tessera::testing {
namespace {

constexpr std::string_view text = "flash_attention q=[1,64,8,96]f32 k=[1,64,8,96]";

constexpr attention_config d96 =
    resolved({.target = backend::cpu_avx512, .head_dim = 96, .block_q = 112, .block_kv = 128});

instance row_of_ours(const attention_config& config = d96) {
  return {.name = "mine.d96", .family = "attention", .target = config.target, .config = &config};
}

TEST(ApplicationRows, TakePartInEveryTier) {
  const std::array mine{row_of_ours()};
  const application_rows own(mine);
  question one(text);
  EXPECT_EQ(one.answer()->reason, selection_reason::generic_fallback);
  one.own_rows = &own;
  EXPECT_EQ(one.row(), "mine.d96");
  EXPECT_EQ(one.answer()->instance, mine.data());
  one.row_of_call = "mine.*";
  EXPECT_EQ(one.row(), "mine.d96");
  one.row_of_call = {};
  const explanation all = explain(one.asked());
  EXPECT_EQ(all.row, "mine.d96");
  EXPECT_EQ(all.eligible.size() + all.rejected.size(), rows().size() + 1);
  const lookup_tables tables = tables_of({line_for(one, "mine.d96")});
  one.tables = &tables;
  EXPECT_EQ(one.answer()->tier, selection_tier::persistent);
  one.own_rows = nullptr;
  EXPECT_EQ(one.answer()->tier, selection_tier::heuristic) << "the line is stale without them";
}

TEST(ApplicationRows, AreNotRememberedForCallsWithoutThem) {
  selection_memory memory;
  const std::array mine{row_of_ours()};
  question one(text);
  one.memory = &memory;
  for (int i = 0; i < 2; ++i) {
    const application_rows own(mine);
    one.own_rows = &own;
    EXPECT_FALSE(one.answer()->remembered) << "other rows, at the same address or not";
    EXPECT_TRUE(one.answer()->remembered);
  }
  one.own_rows = nullptr;
  EXPECT_NE(one.row(), "mine.d96");
}

TEST(ApplicationRows, OfSeveralFamiliesStandInOneList) {
  instance foreign;
  foreign.name = "mine.pooling";
  foreign.family = "mean_pooling";  // without a config: must not be looked at
  const std::array mine{foreign, row_of_ours(), foreign};
  const application_rows own(mine);
  const application_rows same(mine);
  EXPECT_NE(own.number(), same.number());
  question one(text);
  one.own_rows = &own;
  EXPECT_EQ(one.answer()->instance, &mine[1]);
  EXPECT_EQ(one.asked().row_count(), rows().size() + 1);
  EXPECT_EQ(one.asked().row_named("mine.pooling"), nullptr);
  one.row_of_call = "mine.pooling";
  EXPECT_EQ(one.answer().code(), status_code::unknown_row);
}

TEST(ApplicationRows, WinOverRowsOfTheSameName) {
  question one("flash_attention q=[1,64,8,64]f32 k=[1,64,8,64]");
  attention_config d64 = d96;
  d64.head_dim = d64.v_head_dim = 64;
  instance same = row_of_ours(d64);
  same.name = one.answer()->instance->name;
  const std::array mine{same};
  const application_rows own(mine);
  one.own_rows = &own;
  one.row_of_call = same.name;
  EXPECT_EQ(one.answer()->instance, mine.data());
}

}  // namespace
}  // namespace tessera::testing
