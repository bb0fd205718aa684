// Explanations: data, and the text of TESSERA_EXPLAIN.
#include <gtest/gtest.h>

#include "pretended.hpp"

namespace tessera::testing {
namespace {

TEST(Explain, AsksEveryTierAndJudgesEveryRow) {
  const question question("flash_attention q=[1,1,32,128]bf16 k=[1,8192,8,128]",
                          backend::cpu_avx512_bf16, 2);
  const explanation all = explain(question.asked());
  EXPECT_EQ(all.op, "flash_attention");
  EXPECT_EQ(all.row, "attention.cpu_avx512_bf16.bf16.d128.decode.16x128");
  EXPECT_EQ(all.tier, selection_tier::heuristic);
  EXPECT_EQ(all.reason, selection_reason::cheapest);
  EXPECT_EQ(all.reason_text, "decode, 16 work items for 2 threads");
  ASSERT_EQ(all.tiers.size(), chain.size());
  for (std::size_t i = 0; i < all.tiers.size(); ++i) {
    EXPECT_EQ(all.tiers[i].tier, chain[i].tier);
    EXPECT_FALSE(all.tiers[i].reason.empty());
  }
  EXPECT_EQ(all.eligible.size() + all.rejected.size(), rows().size());
  EXPECT_EQ(all.eligible.front().row, all.row);
  EXPECT_TRUE(all.better_row.empty());
}

TEST(Explain, HasThreeLevels) {
  const question question("flash_attention q=[1,1,32,128]bf16 k=[1,8192,8,128]",
                          backend::cpu_avx512_bf16, 2);
  const explanation all = explain(question.asked());
  const std::string line =
      "flash_attention q=[1,1,32,128]bf16 k=[1,8192,8,128] -> "
      "attention.cpu_avx512_bf16.bf16.d128.decode.16x128 (heuristic: decode, 16 work items for 2 "
      "threads)";
  EXPECT_EQ(to_text(all, 1), line);
  const std::string two = to_text(all, 2);
  EXPECT_EQ(two.find(line + "\n  override: no row is named\n  overlay: no overlay is in force\n"
                            "  memory: no earlier choice is used\n  persistent: no table is asked\n"
                            "  autotune: the policy does not allow it\n"
                            "  heuristic: lowest predicted time of "),
            0u)
      << two;
  const std::string three = to_text(all, 3);
  EXPECT_EQ(three.find(two), 0u);
  EXPECT_NE(three.find("\n  not  attention.cpu_avx2.bf16.d64.decode.16x128: head_dim is 128, the "
                       "row has 64"),
            std::string::npos)
      << three;
}

TEST(Explain, NamesTheRowThatWouldServeBetter) {
  const question first_question(
      "flash_attention q=[1,512,8,96]bf16 k=[1,512,8,96] logits_soft_cap=5", backend::cpu_avx512);
  const explanation all = explain(first_question.asked());
  EXPECT_EQ(all.reason, selection_reason::generic_fallback);
  EXPECT_EQ(all.better_row, "attention.cpu_avx512.bf16.d96.soft_cap.896x256");
  const question f32("flash_attention q=[1,512,8,80]f32 k=[1,512,8,80] v=[1,512,8,40]");
  EXPECT_EQ(explain(f32.asked()).better_row, "attention.cpu_avx512.f32.d80v40.896x256");
}

TEST(Explain, TellsWhyNothingRuns) {
  question question("flash_attention q=[1,512,8,64]f32 k=[1,512,8,64]");
  question.row_of_call = "nothing";
  const explanation all = explain(question.asked());
  EXPECT_TRUE(all.row.empty());
  EXPECT_EQ(all.refusal, question.answer().message());
  EXPECT_EQ(all.tiers.size(), chain.size());
  EXPECT_EQ(to_text(all, 1), all.problem + " -> no row (" + all.refusal + ")");
}

}  // namespace
}  // namespace tessera::testing
