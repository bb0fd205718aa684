// The persistent tier: what a measured line can and cannot decide.
#include <string>

#include <gtest/gtest.h>

#include "measured.hpp"

namespace tessera::testing {
namespace {

constexpr std::string_view long_prompt =
    "flash_attention q=[1,2048,32,128]bf16 k=[1,2048,8,128] causal=true";
constexpr std::string_view long_prompt_row = "attention.cpu_avx512_bf16.bf16.d128.896x256";
constexpr std::string_view measured = "attention.cpu_avx512.bf16.d128.896x256";
constexpr std::string_view unfit = "attention.cpu_avx512.bf16.d64.896x256";

TEST(Persistent, AMeasuredRowComesBeforeThePredictedOne) {
  question question(long_prompt);
  EXPECT_EQ(question.row(), long_prompt_row);
  const lookup_tables tables = tables_of({line_for(question, measured, 12.5)});
  question.tables = &tables;
  const auto chosen = question.answer();
  ASSERT_TRUE(chosen) << chosen.message();
  EXPECT_EQ(chosen->row(), measured);
  EXPECT_EQ(chosen->tier, selection_tier::persistent);
  EXPECT_EQ(chosen->reason, selection_reason::measured);
  EXPECT_DOUBLE_EQ(chosen->measured_seconds, 12.5e-6);
  EXPECT_EQ(chosen->distance, 0.0f);
}

TEST(Persistent, UserComesBeforeSiteBeforeShipped) {
  question question(long_prompt);
  const lookup_tables all =
      tables_of({line_for(question, measured)}, {line_for(question, long_prompt_row)},
                {line_for(question, long_prompt_row)});
  question.tables = &all;
  EXPECT_EQ(question.row(), measured);
  const lookup_tables two =
      tables_of({}, {line_for(question, measured)}, {line_for(question, long_prompt_row)});
  question.tables = &two;
  EXPECT_EQ(question.row(), measured);
  question.policy.tables = table_use::shipped_only;
  EXPECT_EQ(question.row(), long_prompt_row);
  EXPECT_EQ(question.answer()->tier, selection_tier::persistent);
  question.policy.tables = table_use::none;
  EXPECT_EQ(question.answer()->tier, selection_tier::heuristic);
}

TEST(Persistent, SizesOfOneBucketShareALine) {
  question first_question(long_prompt);
  const lookup_tables tables = tables_of({line_for(first_question, measured)});
  question near("flash_attention q=[1,1500,32,128]bf16 k=[1,1100,8,128] causal=true");
  near.tables = &tables;
  EXPECT_EQ(near.row(), measured);
  EXPECT_EQ(near.answer()->reason, selection_reason::measured);
}

TEST(Persistent, NearSizesAnswerOnlyAsFarAsDeclaredAndSayHowFar) {
  question first_question(long_prompt);
  const lookup_tables tables = tables_of({line_for(first_question, measured)});
  question near("flash_attention q=[1,4000,32,128]bf16 k=[1,2048,8,128] causal=true");
  near.tables = &tables;
  const auto chosen = near.answer();
  EXPECT_EQ(chosen->row(), measured);
  EXPECT_EQ(chosen->reason, selection_reason::measured_nearby);
  EXPECT_FLOAT_EQ(chosen->distance, 1.0f);
  EXPECT_NE(explain(near.asked()).reason_text.find("1 doublings away"), std::string::npos);
  near.policy.nearest = nearest_use::never;
  EXPECT_EQ(near.answer()->tier, selection_tier::heuristic);
  question far("flash_attention q=[1,8000,32,128]bf16 k=[1,8000,8,128] causal=true");
  far.tables = &tables;
  EXPECT_EQ(far.answer()->tier, selection_tier::heuristic);
}

TEST(Persistent, ASingleRowIsNeverNearTwo) {
  question two("flash_attention q=[1,2,32,128]bf16 k=[1,2048,8,128]");
  const lookup_tables tables = tables_of({line_for(two, measured)});
  question question("flash_attention q=[1,1,32,128]bf16 k=[1,2048,8,128]");
  question.tables = &tables;
  EXPECT_EQ(question.answer()->tier, selection_tier::heuristic);
}

TEST(Persistent, OtherDevicesThreadsAndPromisesHaveLinesOfTheirOwn) {
  const question first_question(long_prompt);
  const lookup_tables tables = tables_of({line_for(first_question, measured)});
  question smaller(long_prompt, backend::cpu_avx512_bf16, 2);
  smaller.tables = &tables;
  EXPECT_EQ(smaller.answer()->tier, selection_tier::heuristic);
  question fewer(long_prompt);
  fewer.threads = 2;
  fewer.tables = &tables;
  EXPECT_EQ(fewer.answer()->tier, selection_tier::heuristic);
  question cache(long_prompt);
  cache.device.l2_bytes *= 2;
  cache.tables = &tables;
  EXPECT_EQ(cache.answer()->tier, selection_tier::heuristic);
  question promised(long_prompt);
  promised.policy.promise = bits_promise::deterministic;
  const lookup_tables both =
      tables_of({line_for(first_question, long_prompt_row),
                 line_for(promised, measured, 10, bits_promise::deterministic)});
  promised.tables = &both;
  EXPECT_EQ(promised.row(), measured) << "a line of the promise comes first";
  promised.tables = &tables;
  EXPECT_EQ(promised.row(), measured) << "else one without, whose row keeps it";
}

TEST(Persistent, StaleLinesAreHintsAndAreTold) {
  question question(long_prompt);
  struct {
    lookup_record line;
    std::string reason;
  } cases[] = {
      {line_for(question, measured), "user table: the row was measured with other kernels"},
      {line_for(question, "attention.gone"), "user table: the row is not in this build"},
      {line_for(question, measured), "user table: the row is of another version of the family"},
      {line_for(question, unfit),
       "user table: the row does not run this problem here: head_dim is 128, the row has 64"},
  };
  cases[0].line.code_version = "0123456789abcdef";
  cases[2].line.semantic_version += 1;
  for (const auto& [line, reason] : cases) {
    const lookup_tables tables = tables_of({line});
    question.tables = &tables;
    EXPECT_EQ(question.row(), long_prompt_row);
    EXPECT_EQ(question.answer()->tier, selection_tier::heuristic);
    const explanation all = explain(question.asked());
    ASSERT_EQ(all.stale.size(), 1u) << reason;
    EXPECT_EQ(all.stale[0].row, line.row);
    EXPECT_EQ(all.stale[0].reason, reason);
  }
  const lookup_tables tables = tables_of({cases[0].line});
  question.tables = &tables;
  EXPECT_EQ(hint_of(question.asked()), measured);
}

TEST(Persistent, KernelsOfTheOtherKindOfDeviceDoNotCount) {
  question question(long_prompt);
  lookup_record line = line_for(question, measured);
  ASSERT_EQ(line.code_version, attention_code_version(device_kind::cpu));
  ASSERT_NE(line.code_version, attention_code_version(device_kind::cuda));
  const lookup_tables tables = tables_of({line});
  question.tables = &tables;
  EXPECT_EQ(question.row(), measured);
  line.code_version = attention_code_version(device_kind::cuda);
  const lookup_tables other = tables_of({line});
  question.tables = &other;
  EXPECT_EQ(question.row(), long_prompt_row) << "a CPU line with the code of CUDA rows is stale";
  EXPECT_EQ(explain(question.asked()).stale.size(), 1u);
}

TEST(Persistent, AStaleLineOfTheUserLetsTheSiteAnswer) {
  question question(long_prompt);
  lookup_record old = line_for(question, long_prompt_row);
  old.code_version = "old";
  const lookup_tables tables = tables_of({old}, {line_for(question, measured)});
  question.tables = &tables;
  EXPECT_EQ(question.row(), measured);
}

TEST(Properties, RowForAnIneligibleInstanceIsNeverExecuted) {
  for (const backend highest : {backend::cpu_generic, backend::cpu_avx2, backend::cpu_avx512}) {
    for (const instance& row : rows()) {
      question question(long_prompt, highest);
      const lookup_tables tables = tables_of({line_for(question, row.name)});
      question.tables = &tables;
      const auto chosen = question.answer();
      ASSERT_TRUE(chosen) << chosen.message();
      EXPECT_TRUE(question.asked().fits(*chosen->instance));
      const bool fits = question.asked().fits(row);
      EXPECT_EQ(chosen->tier == selection_tier::persistent, fits) << row.name;
      if (fits) {
        EXPECT_EQ(chosen->instance, &row);
      }
    }
  }
}

TEST(Explain, ShowsWhatEachTierWouldTake) {
  question question(long_prompt);
  const lookup_tables tables = tables_of({line_for(question, measured, 80)});
  question.tables = &tables;
  question.row_of_call = "attention.cpu_avx2.bf16.d128.*";
  const explanation all = explain(question.asked());
  const auto of = [&](selection_tier tier) {
    for (const tier_answer& answered : all.tiers) {
      if (answered.tier == tier) return answered;
    }
    return tier_answer{};
  };
  EXPECT_TRUE(of(selection_tier::override).decided);
  EXPECT_EQ(of(selection_tier::override).row, "attention.cpu_avx2.bf16.d128.384x256");
  EXPECT_FALSE(of(selection_tier::persistent).decided);
  EXPECT_EQ(of(selection_tier::persistent).row, measured);
  EXPECT_EQ(of(selection_tier::persistent).reason,
            "user table, measured 80 us, 1.25x as fast as default");
  EXPECT_EQ(of(selection_tier::heuristic).row, long_prompt_row);
  EXPECT_EQ(all.device_class, "cpu_avx512_bf16.l1d=32K.l2=1M.cores=8");
  EXPECT_EQ(
      all.identity,
      "type=bf16 mask=causal features=none head_dim=128 v_head_dim=128 group=4 phase=prefill");
  EXPECT_EQ(all.size, "q_len=2048 kv_len=2048 batch_heads=8 window=0 threads=8");
}

}  // namespace
}  // namespace tessera::testing
