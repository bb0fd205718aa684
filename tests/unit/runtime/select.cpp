// Choices as data, on devices that are not there.
#include <gtest/gtest.h>

#include "pretended.hpp"

namespace tessera::testing {
namespace {

constexpr std::string_view prefill = "flash_attention q=[1,2048,32,128]f32 k=[1,2048,8,128]";
constexpr std::string_view prefill_bf16 =
    "flash_attention q=[1,2048,32,128]bf16 k=[1,2048,8,128] causal=true";
constexpr std::string_view decode = "flash_attention q=[1,1,32,128]bf16 k=[1,8192,8,128]";

TEST(Select, TakesTheHighestInstructionSetOfTheDevice) {
  const auto on = [](std::string_view text, backend highest) {
    return std::string(question(text, highest).row());
  };
  EXPECT_EQ(on(prefill, backend::cpu_avx2), "attention.cpu_avx2.f32.d128.384x256");
  EXPECT_EQ(on(prefill, backend::cpu_avx512), "attention.cpu_avx512.f32.d128.896x256");
  EXPECT_EQ(on(prefill_bf16, backend::cpu_avx512), "attention.cpu_avx512.bf16.d128.896x256");
  EXPECT_EQ(on(prefill_bf16, backend::cpu_avx512_bf16),
            "attention.cpu_avx512_bf16.bf16.d128.896x256");
  EXPECT_EQ(on(prefill, backend::cpu_generic), "attention.cpu_generic.f32.dany.every.256x256");
}

TEST(Select, TakesDecodeRowsForFewQueryRows) {
  EXPECT_EQ(question(decode).row(), "attention.cpu_avx512_bf16.bf16.d128.decode.16x128");
  EXPECT_EQ(question(decode, backend::cpu_avx2).row(),
            "attention.cpu_avx2.bf16.d128.decode.16x128");
  EXPECT_EQ(question(prefill_bf16).answer()->instance->config_as<attention_config>().phase,
            attention_phase::prefill);
}

TEST(Select, TakesTheSmallestSufficientFeatureSet) {
  const std::string cap = std::string(prefill) + " logits_soft_cap=50";
  EXPECT_EQ(question(cap, backend::cpu_avx512).row(),
            "attention.cpu_avx512.f32.d128.soft_cap.896x256");
  const std::string bias = cap + " bias_pre=[1,1,2048,2048]f32";
  EXPECT_EQ(question(bias, backend::cpu_avx512).row(),
            "attention.cpu_avx512.f32.dany.every.896x256");
}

TEST(Select, SaysWhy) {
  const auto special = question(prefill).answer();
  ASSERT_TRUE(special);
  EXPECT_EQ(special->tier, selection_tier::heuristic);
  EXPECT_EQ(special->reason, selection_reason::cheapest);
  EXPECT_GT(special->predicted_seconds, 0.0);
  EXPECT_EQ(special->near_miss, nullptr);
  const auto generic =
      question("flash_attention q=[1,64,8,96]f32 k=[1,64,8,96]", backend::cpu_avx2).answer();
  ASSERT_TRUE(generic);
  EXPECT_EQ(generic->reason, selection_reason::generic_fallback);
  ASSERT_NE(generic->near_miss, nullptr);
  EXPECT_EQ(generic->near_miss->config_as<attention_config>().target, backend::cpu_avx2);
  EXPECT_EQ(generic->near_miss->config_as<attention_config>().type, dtype::f32);
}

TEST(Select, IsPure) {
  for (const std::string_view text : {prefill, prefill_bf16, decode}) {
    const question question(text);
    EXPECT_EQ(question.answer()->instance, question.answer()->instance);
  }
}

TEST(Select, EveryRowIsReachableByName) {
  for (const instance& row : rows()) {
    const std::string size = std::to_string(row.config_as<attention_config>().head_dim == 0
                                                ? 40
                                                : row.config_as<attention_config>().head_dim);
    const std::string shape =
        "=[1,16,4," + size + "]" + std::string(name_of(row.config_as<attention_config>().type));
    const backend highest = is_cuda(row.target) ? row.target : backend::cpu_amx_bf16;
    question question("flash_attention q" + shape + " k" + shape, highest);
    question.row_of_call = row.name;
    const auto chosen = question.answer();
    ASSERT_TRUE(chosen) << chosen.message();
    EXPECT_EQ(chosen->instance, &row);
  }
}

TEST(Select, NeverPicksWhatDoesNotFit) {
  for (const std::string_view text : {prefill, prefill_bf16, decode}) {
    for (const backend highest : all_backends) {
      const question question(text, highest);
      const auto chosen = question.answer();
      ASSERT_TRUE(chosen) << chosen.message();
      EXPECT_LE(chosen->instance->config_as<attention_config>().target, highest);
      EXPECT_TRUE(runs(chosen->instance->config_as<attention_config>(), question.problem));
    }
  }
}

TEST(Select, SpellsOutTheDifferenceIfNothingFits) {
  const question question("flash_attention q=[1,16,4,96]f32 k=[1,16,4,96]", backend::cpu_avx2);
  inquiry asked = question.asked();
  std::vector<instance> few;
  for (const instance& row : rows()) {
    const attention_config& config = row.config_as<attention_config>();
    const bool fixed = config.head_dim == 128 && config.phase == attention_phase::prefill;
    if (fixed && config.target == backend::cpu_avx512) few.push_back(row);
    if (fixed && config.target == backend::cpu_avx2) few.push_back(row);
  }
  asked.instances = few;
  const auto chosen = select(asked);
  EXPECT_EQ(chosen.code(), status_code::no_row);
  EXPECT_EQ(chosen.message(),
            "none of the 7 attention rows of this build runs flash_attention q=[1,16,4,96]f32 "
            "k=[1,16,4,96]: attention.cpu_avx2.f32.d128.384x256: head_dim is 96, the row "
            "has 128; attention.cpu_avx2.bf16.d128.384x256: dtype is f32, the row has bf16; "
            "attention.cpu_avx2.f16.d128.384x256: dtype is f32, the row has f16; the row "
            "list lacks attention.cpu_avx2.f32.d96.384x256");
  asked.instances = {};
  EXPECT_EQ(select(asked).message(),
            "none of the 0 attention rows of this build runs flash_attention q=[1,16,4,96]f32 "
            "k=[1,16,4,96]; the row list lacks attention.cpu_avx2.f32.d96.384x256");
}

TEST(Select, EmptyProblemsHaveARowToo) {
  for (const char* text : {"flash_attention q=[0,16,4,64]f32 k=[0,16,4,64]",
                           "flash_attention q=[2,0,4,64]f32 k=[2,16,4,64] causal=true",
                           "flash_attention q=[2,16,4,64]f32 k=[2,0,4,64] window_left=3",
                           "flash_attention q=[7,4,64]f32 k=[7,4,64] cu_seqlens_q=[1]i32 "
                           "cu_seqlens_k=[1]i32"}) {
    EXPECT_TRUE(question(text).answer()) << text;
  }
}

TEST(Cost, MoreWorkTakesLonger) {
  const device_facts device = device_with(backend::cpu_avx512);
  work_estimate work{.flops = 1e9, .bytes = 1e6, .items = 64};
  const double base = predicted_seconds(work, backend::cpu_avx512, device, 8);
  EXPECT_GT(predicted_seconds(work, backend::cpu_avx2, device, 8), base);
  EXPECT_GT(predicted_seconds(work, backend::cpu_avx512, device, 1), 4 * base);
  work.items = 65;  // a ninth wave for one item
  EXPECT_GT(predicted_seconds(work, backend::cpu_avx512, device, 8), base);
  work.items = 64;
  work.bytes = 1e10;
  EXPECT_GT(predicted_seconds(work, backend::cpu_avx512, device, 8), 2 * base);
}

TEST(Cost, VisibleKeysFollowTheMask) {
  const auto keys = [](std::string_view options) {
    return mean_visible_keys(demand_of(*parse_problem<flash_problem>(
        "flash_attention q=[1,64,1,64]f32 k=[1,256,1,64] " + std::string(options))));
  };
  EXPECT_EQ(keys(""), 256);
  EXPECT_NEAR(keys("causal=true"), 192 + 32.5, 0.6);
  EXPECT_NEAR(keys("causal=true causal_alignment=top_left"), 32.5, 0.6);
  EXPECT_NEAR(keys("window_left=15 window_right=0"), 16, 0.6);
}

}  // namespace
}  // namespace tessera::testing
