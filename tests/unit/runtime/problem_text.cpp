// Problem text: there and back, and refusals.
#include <limits>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include <tessera/families/attention/operations.hpp>
#include <tessera/families/delta_rule/operations.hpp>
#include <tessera/families/latent_attention/declaration.hpp>
#include <tessera/families/selective_scan/declaration.hpp>
#include <tessera/spec/problem_text.hpp>

namespace tessera::testing {
namespace {

/// Dtype and extents are the same.
bool same_shape(const tensor_view& a, const tensor_view& b) {
  return a.type == b.type && a.rank == b.rank && a.extent == b.extent;
}

bool same(const flash_problem& a, const flash_problem& b) {
  for (std::size_t tensor = 0; tensor < attention_table::form.tensors.size(); ++tensor) {
    if (!same_shape(tensors_of(a.tensors)[tensor], tensors_of(b.tensors)[tensor])) return false;
  }
  return a.op == b.op && a.unaligned == b.unaligned && a.options == b.options;
}

TEST(ProblemText, ReadsTheDocumentedLine) {
  const auto problem = parse_problem<flash_problem>(
      "flash_attention q=[1,2048,32,128]bf16 k=[1,2048,8,128] causal=true window_left=1023");
  ASSERT_TRUE(problem) << problem.message();
  EXPECT_EQ(problem->op, flash_op::flash_attention);
  const flash_attention_args& tensors = problem->tensors;
  EXPECT_TRUE(same_shape(tensors.q, shaped(dtype::bf16, {1, 2048, 32, 128})));
  EXPECT_TRUE(same_shape(tensors.k, shaped(dtype::bf16, {1, 2048, 8, 128})));
  EXPECT_TRUE(same_shape(tensors.v, tensors.k));
  EXPECT_TRUE(problem->options.causal);
  EXPECT_EQ(problem->options.window_left, 1023);
  EXPECT_EQ(problem->options.window_right, std::nullopt);
  EXPECT_FALSE(tensors.mask.present());
}

TEST(ProblemText, LeavesOutWhatIsDefault) {
  const char* const line =
      "attention q=[1,16,4,64]f32 k=[1,16,4,64] v=[1,16,4,32] weights=[1,4,16,16]f32 "
      "softmax_scale=0.1 causal_alignment=top_left dropout_seed=18446744073709551615 "
      "normalize=false";
  const auto problem = parse_problem<flash_problem>(line);
  ASSERT_TRUE(problem) << problem.message();
  EXPECT_EQ(to_text(*problem), line);
}

TEST(ProblemText, IsReadByAliasesAndWrittenByTheName) {
  const std::string fields = " q=[1,4,2,8]f32 v=[1,4,2,8] beta=[1,4,2]f32";
  const auto problem = parse_problem<delta_rule_problem>("kda" + fields);
  ASSERT_TRUE(problem) << problem.message();
  EXPECT_EQ(problem->op, delta_rule_op::kernel_delta_attention);
  EXPECT_TRUE(to_text(*problem).starts_with("kernel_delta_attention "));
  const auto backward = parse_problem<delta_rule_problem>("kda_backward" + fields);
  ASSERT_TRUE(backward) << backward.message();
  EXPECT_EQ(backward->op, delta_rule_op::kernel_delta_attention_backward);
  const auto latents = parse_problem<flash_mla_problem>(
      "multi_head_latent_attention ckv=[1,4,8]f32 w_kc=[8,2,4] w_vc=[8,2,4] q=[1,4,2,4]");
  ASSERT_TRUE(latents) << latents.message();
  EXPECT_TRUE(to_text(*latents).starts_with("flash_mla "));
  EXPECT_EQ(parse_problem<state_space_problem>("ssm x=[1,4,2]f32").message(),
            "problem: starts with 'ssm', must be one of state_space_v1 (ssm1, mamba1), "
            "state_space_v2 (ssm2, mamba2), state_space_v1_backward (ssm1_backward, "
            "mamba1_backward), state_space_v2_backward (ssm2_backward, mamba2_backward)");
}

TEST(ProblemText, ComesBackUnchanged) {
  std::mt19937_64 random(3);
  const auto shape = [&] {
    tensor_view view = shaped(static_cast<dtype>(1 + random() % (dtype_names.size() - 1)), {});
    view.rank = static_cast<std::int8_t>(random() % (max_rank + 1));
    for (std::int8_t axis = 0; axis < view.rank; ++axis) {
      view.extent[static_cast<std::size_t>(axis)] = static_cast<std::int64_t>(random());
    }
    return view;
  };
  for (int round = 0; round < 2000; ++round) {
    flash_problem problem{.op = static_cast<flash_op>(random() % 3),
                          .tensors = {.q = shape(), .k = shape(), .v = shape()},
                          .unaligned = random() % 2 != 0};
    if (random() % 2 != 0) problem.tensors.bias_post = shape();
    if (random() % 2 != 0) problem.tensors.cu_seqlens_q = shape();
    const bool has_weights = problem.op == flash_op::attention && random() % 2 != 0;
    if (has_weights) problem.tensors.weights = shape();
    if (random() % 2 != 0) {
      problem.options.softmax_scale = static_cast<double>(random()) * 0x1p-70;
    }
    if (random() % 2 != 0) problem.options.window_right = static_cast<std::int64_t>(random());
    problem.options.dropout_probability = static_cast<double>(random() % 3) / 7.0;
    problem.options.dropout_seed = random();
    problem.options.causal = random() % 2 != 0;
    const auto back = parse_problem<flash_problem>(to_text(problem));
    ASSERT_TRUE(back) << back.message();
    EXPECT_TRUE(same(*back, problem)) << to_text(problem);
  }
}

// The numbers of operations count through a family, those of its enumerators do not.
TEST(ProblemText, ReadsOperationsOfEverySignature) {
  const std::string line =
      "page_attention q=[2,8,64]f16 k_pages=[9,16,2,64] block_table=[2,4]i32 pool_layout=PTHD";
  const auto problem = parse_problem<page_problem>(line);
  ASSERT_TRUE(problem) << problem.message();
  EXPECT_EQ(problem->op, page_op::page_attention);
  EXPECT_EQ(problem->options.pool_layout, page_layout::PTHD);
  EXPECT_TRUE(same_shape(problem->tensors.v_pages, problem->tensors.k_pages));
  EXPECT_EQ(problem->tensors.k_pages.type, dtype::f16);
  EXPECT_EQ(to_text(*problem), line);
}

TEST(ProblemText, SaysTypesThatAreNotThoseOfOthers) {
  const std::string line =
      "page_attention q=[2,8,64]f16 k_pages=[9,2,16,64]f8_e4m3 block_table=[2,4]i32 k_scale=0.5";
  const auto problem = parse_problem<page_problem>(line);
  ASSERT_TRUE(problem) << problem.message();
  EXPECT_EQ(problem->tensors.v_pages.type, dtype::f8_e4m3);
  EXPECT_EQ(problem->options.k_scale, 0.5);
  EXPECT_EQ(to_text(*problem), line);
}

TEST(ProblemText, RefusesInOneSentence) {
  const auto message = [](std::string_view text) {
    const auto problem = parse_problem<flash_problem>(text);
    EXPECT_FALSE(problem) << text;
    EXPECT_EQ(problem.code(), status_code::malformed);
    return problem.message();
  };
  EXPECT_EQ(message("softmax q=[1]f32"),
            "problem: starts with 'softmax', must be one of flash_attention, attention, "
            "scaled_dot_product_attention");
  EXPECT_EQ(message(""), message("   \t\n"));
  EXPECT_EQ(message("attention q=[1] k=[1]f32"), "problem: q has no dtype");
  EXPECT_EQ(message("attention q=[1]f32 k=[1] mask=[1]"), "problem: mask has no dtype");
  EXPECT_EQ(message("attention q=[1]f32 k"), "problem: 'k' has no '=', fields are name=value");
  EXPECT_EQ(message("attention q=[1]f32 q=[1]f32"), "problem: q is given twice");
  EXPECT_EQ(message("attention q=[1]f32 k=[1] causal=yes"),
            "problem: causal is 'yes', must be true or false");
  EXPECT_EQ(message("attention q=[1]f32 k=[1] window_left=3.5"),
            "problem: window_left is '3.5', must be a 64-bit integer");
  EXPECT_EQ(message("attention q=[1]f32 k=[1] causal_alignment=left"),
            "problem: causal_alignment is 'left', must be one of bottom_right, top_left");
  EXPECT_EQ(message("attention q=[1]f32 k=[1] dropout_seed=-1"),
            "problem: dropout_seed is '-1', must be an unsigned 64-bit integer");
  const std::string unknown = message("attention q=[1]f32 k=[1] window=3");
  EXPECT_EQ(unknown.find("problem: attention has no field 'window', the fields are q, k, v, "), 0u)
      << unknown;
  for (const char* shape :
       {"1,2", "[1,2", "[1,,2]f32", "[1,]f32", "[,1]f32", "[a]f32", "[1]f33", "[1]none",
        "[1,2,3,4,5,6]f32", "[9223372036854775808]f32", "[ 1]f32", "[1]f32x", "", "]", "[1][2]"}) {
    EXPECT_FALSE(parse_problem<flash_problem>(std::string("attention k=[1]f32 q=") + shape))
        << shape;
  }
}

TEST(ProblemText, MayLackTensorsWhichTheChecksThenName) {
  const auto refusal = [](std::string_view text) {
    const auto problem = parse_problem<flash_problem>(text);
    EXPECT_TRUE(problem) << problem.message();
    attention_kernel_args lowered;
    return problem ? lower(*problem, lowered).message() : std::string();
  };
  EXPECT_EQ(refusal("attention k=[1,2,3,4]f32"), "q: is absent, attention needs q, k, v and out");
  EXPECT_EQ(refusal("attention q=[1,2,3,4]f32"), "k: is absent, attention needs q, k, v and out");
  EXPECT_EQ(refusal("attention q=[1,2,3,4]f32 k=[1,2,3,4]"), "");
}

TEST(ProblemText, SurvivesMutilation) {
  const std::string line =
      "flash_attention q=[1,2048,32,128]bf16 k=[1,2048,8,128] causal=true window_left=1023";
  std::mt19937 random(5);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = line.substr(0, random() % (line.size() + 1));
    for (auto changes = random() % 4; changes-- > 0 && !text.empty();) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    const auto problem = parse_problem<flash_problem>(text);
    if (!problem) {
      ++refused;
      EXPECT_FALSE(problem.message().empty());
      continue;
    }
    const auto again = parse_problem<flash_problem>(to_text(*problem));
    ASSERT_TRUE(again) << text;
  }
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace tessera::testing
