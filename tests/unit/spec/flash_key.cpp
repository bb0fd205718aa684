// Problems and their keys: what makes two problems share a choice, and what must not.
#include <cstdint>
#include <limits>
#include <string_view>

#include <gtest/gtest.h>

#include <tessera/families/attention/demand.hpp>
#include <tessera/runtime/key.hpp>

namespace {

using tessera::attention_feature;
using tessera::bucket_top;
using tessera::dtype;
using tessera::flash_problem;
using tessera::mask_mode;
using tessera::shaped;
using tessera::tensor_view;

/// The value of a field of the problem's demand.
std::int64_t field_of(const flash_problem& problem, std::string_view name) {
  const tessera::demand asked(demand_of(problem));
  for (const tessera::demand_field& field : tessera::attention_fields::table) {
    if (field.name == name) return field.value(asked);
  }
  ADD_FAILURE() << "there is no field " << name;
  return -1;
}

/// The size that tables know it by.
std::int64_t bucket_of(const flash_problem& problem, std::string_view name) {
  return bucket_top(field_of(problem, name));
}

flash_problem dense(std::int64_t q_len, std::int64_t kv_len) {
  flash_problem problem;
  problem.tensors.q = shaped(dtype::bf16, {2, q_len, 8, 128});
  problem.tensors.k = shaped(dtype::bf16, {2, kv_len, 2, 128});
  problem.tensors.v = shaped(dtype::bf16, {2, kv_len, 2, 64});
  return problem;
}

TEST(attention_key, reads_sizes_off_a_dense_problem) {
  const flash_problem problem = dense(100, 300);
  const tessera::attention_demand asked = demand_of(problem);
  EXPECT_EQ(asked.type, dtype::bf16);
  EXPECT_EQ(asked.sizes.head_dim, 128);
  EXPECT_EQ(asked.sizes.v_head_dim, 64);
  EXPECT_EQ(field_of(problem, "group"), 4);
  EXPECT_EQ(asked.mask, mask_mode::full);
  EXPECT_TRUE(asked.features.empty());
  EXPECT_EQ(bucket_of(problem, "q_len"), 128);
  EXPECT_EQ(bucket_of(problem, "kv_len"), 512);
  EXPECT_EQ(bucket_of(problem, "batch_heads"), 4);
  EXPECT_EQ(bucket_of(problem, "window"), 0);
}

TEST(attention_key, packed_problems_report_mean_lengths) {
  flash_problem problem;
  problem.tensors.q = shaped(dtype::f32, {10, 4, 64});
  problem.tensors.k = shaped(dtype::f32, {31, 4, 64});
  problem.tensors.v = shaped(dtype::f32, {31, 4, 64});
  problem.tensors.cu_seqlens_q = shaped(dtype::i32, {4});
  problem.tensors.cu_seqlens_k = shaped(dtype::i32, {4});
  const auto sizes = sizes_of(problem);
  EXPECT_EQ(sizes.batch, 3);
  EXPECT_EQ(sizes.q_len, 4);
  EXPECT_EQ(sizes.kv_len, 11);
  EXPECT_TRUE(demand_of(problem).features.has(attention_feature::varlen));
}

TEST(attention_key, no_sequences_and_no_heads_do_not_divide_by_zero) {
  flash_problem problem;
  problem.tensors.q = shaped(dtype::f32, {0, 0, 64});
  problem.tensors.k = shaped(dtype::f32, {0, 0, 64});
  problem.tensors.v = shaped(dtype::f32, {0, 0, 64});
  problem.tensors.cu_seqlens_q = shaped(dtype::i32, {1});
  problem.tensors.cu_seqlens_k = shaped(dtype::i32, {1});
  EXPECT_EQ(field_of(problem, "group"), 0);
  EXPECT_EQ(sizes_of(problem).batch, 0);
}

TEST(attention_key, mask_is_the_smallest_that_expresses_the_options) {
  flash_problem problem = dense(8, 8);
  EXPECT_EQ(mask_needed(problem.options), mask_mode::full);
  problem.options.causal = true;
  EXPECT_EQ(mask_needed(problem.options), mask_mode::causal);
  problem.options.window_left = 3;
  EXPECT_EQ(mask_needed(problem.options), mask_mode::window);
  problem.options = {.window_right = 0};
  EXPECT_EQ(mask_needed(problem.options), mask_mode::window);
}

TEST(attention_key, each_tensor_and_option_needs_its_feature) {
  const auto needs = [](auto change, attention_feature feature) {
    flash_problem problem = dense(8, 8);
    EXPECT_TRUE(features_needed(problem.tensors, problem.options).empty());
    change(problem);
    EXPECT_EQ(features_needed(problem.tensors, problem.options),
              tessera::attention_features{} | feature);
  };
  const tensor_view scores = shaped(dtype::f32, {1, 1, 8, 8});
  needs([&](flash_problem& p) { p.tensors.bias_pre = scores; }, attention_feature::bias);
  needs([&](flash_problem& p) { p.tensors.bias_post = scores; }, attention_feature::bias);
  needs([&](flash_problem& p) { p.tensors.mask = scores; }, attention_feature::mask);
  needs([&](flash_problem& p) { p.tensors.weights = scores; }, attention_feature::weights);
  needs(
      [](flash_problem& p) {
        p.tensors.q_segment_ids = shaped(dtype::i32, {2, 8});
      },
      attention_feature::segments);
  needs(
      [](flash_problem& p) {
        p.tensors.sinks = shaped(dtype::f32, {8, 1});
      },
      attention_feature::sinks);
  needs([](flash_problem& p) { p.tensors.seqlens_q = shaped(dtype::i32, {2}); },
        attention_feature::lengths);
  needs([](flash_problem& p) { p.tensors.seqlens_k = shaped(dtype::i32, {2}); },
        attention_feature::lengths);
  needs([](flash_problem& p) { p.options.normalize = false; }, attention_feature::unnormalized);
  needs([](flash_problem& p) { p.options.logits_soft_cap = 1.0; }, attention_feature::soft_cap);
  needs([](flash_problem& p) { p.options.dropout_probability = 0.5; }, attention_feature::dropout);
}

TEST(attention_key, window_bucket_counts_the_keys_a_row_can_see) {
  flash_problem problem = dense(4096, 4096);
  problem.options = {.causal = true, .window_left = 4095};
  EXPECT_EQ(bucket_of(problem, "window"), 4096);
  problem.options = {.window_left = 100, .window_right = 27};
  EXPECT_EQ(bucket_of(problem, "window"), 128);
  problem.options = {.causal = true, .window_left = 0};
  EXPECT_EQ(bucket_of(problem, "window"), 2);
  problem.options = {.window_left = std::numeric_limits<std::int64_t>::max(), .window_right = 3};
  EXPECT_GT(bucket_of(problem, "window"), std::int64_t{1} << 30);
  problem.options = {.window_left = 100};
  EXPECT_EQ(bucket_of(problem, "window"), 0);
}

TEST(flash_options, last_tokens_window_counts_the_token_itself) {
  const auto options = tessera::last_tokens_window({.causal = true}, 4096);
  EXPECT_EQ(options.window_left, 4095);
  EXPECT_EQ(options.window_right, 0);
  EXPECT_TRUE(options.causal);
}

}  // namespace
