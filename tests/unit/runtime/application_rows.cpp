// Rows of an application: asked like those of the build.
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "measured.hpp"

namespace tessera::testing {
namespace {

constexpr std::string_view text = "flash_attention q=[1,64,8,96]f32 k=[1,64,8,96]";

attention_instance row_of_ours() {
  return {.name = "mine.d96",
          .config = resolved(
              {.target = backend::cpu_avx512, .head_dim = 96, .block_q = 112, .block_kv = 128})};
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
  selection_memory<attention_family> memory;
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

TEST(ApplicationRows, OfSeveralFamiliesAreChained) {
  struct other_instance {
    int value;
  };
  const std::array mine{row_of_ours()};
  const std::array others{other_instance{3}, other_instance{4}};
  const application_rows last(others);
  const application_rows first(mine, &last);
  EXPECT_EQ(first.of<attention_instance>().size(), 1u);
  EXPECT_EQ(first.of<other_instance>().size(), 2u);
  EXPECT_TRUE(last.of<attention_instance>().empty());
  EXPECT_NE(first.number(), last.number());
}

TEST(ApplicationRows, WinOverRowsOfTheSameName) {
  question one("flash_attention q=[1,64,8,64]f32 k=[1,64,8,64]");
  attention_instance same = row_of_ours();
  same.name = one.answer()->instance->name;
  same.config.head_dim = same.config.v_head_dim = 64;
  const std::array mine{same};
  const application_rows own(mine);
  one.own_rows = &own;
  one.row_of_call = same.name;
  EXPECT_EQ(one.answer()->instance, mine.data());
}

}  // namespace
}  // namespace tessera::testing
