// What attention on selected keys is besides a formula: a selection that is given again gives the
// same bits, one of all keys those of flash_mla, of equal scores the first keys are kept, and what
// no list has may hold anything.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/latent_attention.hpp>

#include "tests/op/latent_attention/selected_call.hpp"
#include "tests/support/random.hpp"

namespace tessera::selected_test {
namespace {

bool all_finite(const std::vector<float>& numbers) {
  return std::ranges::all_of(numbers, [](float number) { return std::isfinite(number); });
}

TEST_P(selected_attention, a_selection_that_is_given_has_the_bits_of_one_that_is_made) {
  selected_call made;
  made.select({.causal = true, .index_topk = topk}, forward);
  selected_call given;
  given.slots = made.slots + 2;
  random_source random(11);
  for (std::int64_t t = 0; t < length; ++t) {
    const auto begin = made.indices.begin() + t * made.slots;
    std::vector<std::int32_t> list(begin, begin + made.slots);
    EXPECT_TRUE(std::ranges::is_sorted(begin, std::ranges::find(list, -1) - list.begin() + begin));
    list.push_back(list.front());
    list.push_back(-1);
    shuffle(list, random);
    given.indices.insert(given.indices.end(), list.begin(), list.end());
  }
  given.run_given(forward);
  EXPECT_EQ(given.out, made.out);
  EXPECT_EQ(given.lse, made.lse);
}

TEST_P(selected_attention, all_keys_are_plain_attention) {
  selected_call all;
  all.select({.causal = true}, forward);
  selected_call plain;
  const deepseek_attn_args same = plain.args();
  const auto done = flash_mla({.ckv = same.ckv,
                               .w_kc = same.w_kc,
                               .w_vc = same.w_vc,
                               .k_pe = same.k_pe,
                               .q = same.q,
                               .out = same.out,
                               .lse = same.lse},
                              {.causal = true}, {.row = row("expanded.forward")});
  ASSERT_TRUE(done) << done.message();
  EXPECT_EQ(all.out, plain.out);
  EXPECT_EQ(all.lse, plain.lse);
}

TEST_P(selected_attention, all_keys_are_plain_attention_whatever_becomes_of_scores) {
  score_tensors scores;
  selected_call all;
  deepseek_attn_args args = all.args();
  scores.give(args);
  for (std::int32_t t = 0; t < length; ++t) {
    for (std::int32_t key = 0; key < length; ++key) all.indices.push_back(key);
  }
  args.indices = view(all.indices.data(), {1, length, length});
  const auto done =
      deepseek_attn(args, score_tensors::options<deepseek_attn_options>(), {.row = forward});
  ASSERT_TRUE(done) << done.message();

  selected_call plain;
  const deepseek_attn_args same = plain.args();
  flash_mla_args dense{.ckv = same.ckv,
                       .w_kc = same.w_kc,
                       .w_vc = same.w_vc,
                       .k_pe = same.k_pe,
                       .q = same.q,
                       .out = same.out,
                       .lse = same.lse};
  scores.give(dense);
  const auto done_plain = flash_mla(dense, score_tensors::options<flash_mla_options>(),
                                    {.row = row("expanded.forward")});
  ASSERT_TRUE(done_plain) << done_plain.message();
  EXPECT_EQ(all.out, plain.out);
  EXPECT_EQ(all.lse, plain.lse);
}

TEST_P(selected_attention, what_becomes_of_scores_does_not_change_a_selection) {
  score_tensors scores;
  selected_call plain, other;
  plain.select({.causal = true, .index_topk = topk}, forward);
  auto wanted = score_tensors::options<deepseek_attn_options>();
  wanted.index_topk = topk;
  other.scores = &scores;
  other.select(wanted, forward);
  EXPECT_EQ(other.indices, plain.indices);
  EXPECT_NE(other.out, plain.out);
}

TEST_P(selected_attention, of_equal_scores_the_first_keys_are_kept) {
  selected_call call;
  std::ranges::fill(call.index_weights, 0.0f);
  call.select({.causal = true, .index_topk = topk, .force_self = true}, forward);
  for (std::int32_t t = 0; t < length; ++t) {
    for (std::int32_t s = 0; s < topk + 1; ++s) {
      const std::int32_t own = t >= topk && s == topk ? t : -1;
      EXPECT_EQ(call.indices[static_cast<std::size_t>(t * (topk + 1) + s)],
                s <= t && s < topk ? s : own)
          << "token " << t;
    }
  }
}

TEST_P(selected_attention, only_the_sign_of_the_scale_changes_a_selection) {
  selected_call call, scaled, negative, mirrored;
  call.select({.causal = true, .index_topk = topk}, forward);
  scaled.select({.causal = true, .index_topk = topk, .index_scale = 3e-7}, forward);
  EXPECT_EQ(scaled.indices, call.indices);
  negative.select({.causal = true, .index_topk = topk, .index_scale = -1.0}, forward);
  EXPECT_NE(negative.indices, call.indices);
  for (float& number : mirrored.q_index) number = -number;
  mirrored.select({.causal = true, .index_topk = topk}, forward);
  EXPECT_EQ(negative.indices, mirrored.indices);
}

TEST_P(selected_attention, later_tokens_may_hold_anything) {
  constexpr std::int64_t kept = 101;
  selected_call whole, spoiled;
  spoil(spoiled.ckv, kept, length - kept, latent);
  spoil(spoiled.k_pe, kept, length - kept, rope);
  spoil(spoiled.q, kept, length - kept, heads * width);
  spoil(spoiled.q_index, kept, length - kept, index_heads * index_width);
  spoil(spoiled.k_index, kept, length - kept, index_width);
  spoil(spoiled.index_weights, kept, length - kept, index_heads);
  whole.select({.causal = true, .index_topk = topk}, forward);
  spoiled.select({.causal = true, .index_topk = topk}, forward);
  const auto first_rows = [](const auto& of, std::int64_t columns) {
    return std::vector(of.begin(), of.begin() + kept * columns);
  };
  EXPECT_EQ(first_rows(spoiled.indices, topk), first_rows(whole.indices, topk));
  EXPECT_EQ(first_rows(spoiled.out, heads * value), first_rows(whole.out, heads * value));
}

TEST_P(selected_attention, keys_in_no_list_may_hold_anything_and_get_no_gradient) {
  constexpr std::int64_t hidden = 70;
  selected_call call;
  call.select({.causal = true, .index_topk = topk}, forward);
  std::ranges::replace(call.indices, static_cast<std::int32_t>(hidden), -1);
  spoil(call.ckv, hidden, 1, latent);
  spoil(call.k_pe, hidden, 1, rope);
  call.run_given(forward);
  call.run_backward(backward);
  for (const auto* numbers :
       {&call.out, &call.lse, &call.d_ckv, &call.d_k_pe, &call.d_q, &call.d_w_kc, &call.d_w_vc}) {
    EXPECT_TRUE(all_finite(*numbers));
  }
  const auto begin = call.d_ckv.begin() + hidden * latent;
  EXPECT_TRUE(std::all_of(begin, begin + latent, [](float number) { return number == 0.0f; }));
}

INSTANTIATE_TEST_SUITE_P(backends, selected_attention, testing::ValuesIn(backends),
                         name_of_backend);

}  // namespace
}  // namespace tessera::selected_test
