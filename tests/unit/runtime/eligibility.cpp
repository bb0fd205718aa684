// Which rows run which problems, and the sentence if one cannot.
#include <gtest/gtest.h>

#include <tessera/families/attention/fits.hpp>
#include <tessera/families/attention/operations.hpp>
#include <tessera/families/attention/reflect.hpp>
#include <tessera/spec/problem_text.hpp>

namespace tessera::testing {
namespace {

constexpr attention_config causal_row{
    .target = backend::cpu_avx512, .type = dtype::f32, .head_dim = 128, .mask = mask_mode::causal};

std::string obstacle(const attention_config& config, std::string_view text) {
  const result<flash_problem> problem = parse_problem<flash_problem>(text);
  EXPECT_TRUE(problem) << problem.message();
  return obstacle_of(config, *problem);
}

TEST(Eligibility, NamesBothSides) {
  EXPECT_EQ(obstacle(causal_row, "flash_attention q=[1,9,8,96]f32 k=[1,9,8,96]"),
            "head_dim is 96, the row has 128");
  EXPECT_EQ(obstacle(causal_row, "flash_attention q=[1,9,8,128]f32 k=[1,9,8,128] v=[1,9,8,64]"),
            "v_head_dim is 64, the row has 128");
  EXPECT_EQ(obstacle(causal_row, "flash_attention q=[1,9,8,128]bf16 k=[1,9,8,128]"),
            "dtype is bf16, the row has f32");
  EXPECT_EQ(obstacle(causal_row, "flash_attention q=[1,9,8,128]f32 k=[1,9,8,128] window_left=4"),
            "mask is window, the row has causal");
  EXPECT_EQ(obstacle(causal_row,
                     "flash_attention q=[1,9,8,128]f32 k=[1,9,8,128] logits_soft_cap=5 "
                     "mask=[1,1,9,9]u8 sinks=[1,2]f32"),
            "sinks+soft_cap+mask is needed, the row lacks soft_cap+mask");
  EXPECT_EQ(obstacle(causal_row, "flash_attention q=[1,9,8,128]f32 k=[1,9,8,128] causal=true"),
            "the row runs the problem");
}

TEST(Eligibility, AnyHeadDimTakesEveryHeadDim) {
  const attention_config any{.target = backend::cpu_generic, .features = every_feature};
  for (const char* text : {"flash_attention q=[1,9,8,1]f32 k=[1,9,8,1] v=[1,9,8,256]",
                           "attention q=[1,9,8,77]f32 k=[1,9,2,77] weights=[1,8,9,9]f32"}) {
    EXPECT_TRUE(runs(any, *parse_problem<flash_problem>(text))) << text;
  }
}

TEST(Eligibility, IsKnownWhenCompiling) {
  constexpr flash_problem problem{.tensors = {.q = shaped(dtype::f32, {1, 9, 8, 64}),
                                              .k = shaped(dtype::f32, {1, 9, 8, 64}),
                                              .v = shaped(dtype::f32, {1, 9, 8, 64})}};
  static_assert(!runs(causal_row, problem));
  static_assert(distance_of(causal_row, demand_of(problem)) == 7);
  EXPECT_EQ(obstacle_of(causal_row, problem), "head_dim is 64, the row has 128");
}

TEST(Eligibility, PoolsOfEightBitsAreReadByRowsThatWiden) {
  const auto obstacle_on = [](backend target, int head_dim) {
    const attention_config paged{.target = target,
                                 .head_dim = head_dim,
                                 .keys = key_storage::paged,
                                 .features = every_feature};
    const auto problem = parse_problem<page_problem>(
        "page_attention q=[2,8,64]f32 k_pages=[9,2,16,64]f8_e4m3 block_table=[2,4]i32");
    EXPECT_TRUE(problem) << problem.message();
    return obstacle_of(paged, *problem);
  };
  EXPECT_EQ(obstacle_on(backend::cpu_generic, 64), "the row runs the problem");
  EXPECT_EQ(obstacle_on(backend::cuda_sm80, 0), "the row runs the problem");
  EXPECT_EQ(obstacle_on(backend::cuda_sm80, 64),
            "the pool holds f8_e4m3, the row reads pages of q's type, f32");
}

TEST(Eligibility, RowsForPoolsOfEightBitsReadNoOthers) {
  const attention_config coded{
      .target = backend::cuda_sm80, .type = dtype::f16, .head_dim = 64, .keys = key_storage::coded};
  const auto obstacle = [&](const char* text) {
    const auto problem = parse_problem<page_problem>(text);
    EXPECT_TRUE(problem) << problem.message();
    return obstacle_of(coded, *problem);
  };
  EXPECT_EQ(obstacle("page_attention q=[2,8,64]f16 k_pages=[9,2,16,64]i8 block_table=[2,4]i32"),
            "the row runs the problem");
  EXPECT_EQ(obstacle("page_attention q=[2,8,64]f16 k_pages=[9,2,16,64] block_table=[2,4]i32"),
            "the pool has the type of q, the row reads pools of 8 bits");
}

TEST(Eligibility, FeatureNamesAreThoseOfTheReflection) {
  for (std::size_t i = 0; i < all_attention_features.size(); ++i) {
    EXPECT_EQ(attention_feature_names[i], enumerator_name(all_attention_features[i]));
  }
  for_each_enumerator<mask_mode>(
      [](std::string_view name, mask_mode mask) { EXPECT_EQ(name_of(mask), name); });
}

}  // namespace
}  // namespace tessera::testing
