// What attention on selected keys is besides a formula: a selection that is given again gives the
// same bits, one of all keys those of flash_mla, of equal scores the first keys are kept, and what
// no list has may hold anything.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/latent_attention/registry.hpp>
#include <tessera/latent_attention.hpp>

#include "tests/support/place.hpp"
#include "tests/support/random.hpp"

namespace {

using namespace tessera::support;
using tessera::view;

constexpr std::int64_t length = 150, heads = 3, latent = 40, nope = 24, rope = 8, value = 20;
constexpr std::int64_t width = nope + rope, index_heads = 5, index_width = 12, topk = 17;
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> bells(std::int64_t count, std::uint64_t seed) {
  random_source random(seed);
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = random.bell();
  return numbers;
}
/// Rows [first, first + rows) become what no number is.
void spoil(std::vector<float>& of, std::int64_t first, std::int64_t rows, std::int64_t columns) {
  std::fill_n(of.begin() + first * columns, rows * columns, nan);
}

/// Biases, a mask and sinks of the call, and the options of scores.
struct score_tensors {
  template <class Args>
  void give(Args& to) {
    to.bias_post = view(bias.data(), {1, heads, length, length});
    to.mask = view(mask.data(), {1, 1, length, length});
    to.sinks = view(sinks.data(), {heads, 1});
  }
  template <class Options>
  static Options options() {
    Options wanted;
    wanted.causal = true;
    wanted.window_left = 90;
    wanted.logits_soft_cap = 3.0;
    wanted.dropout_probability = 0.25;
    wanted.dropout_seed = 5;
    return wanted;
  }
  static std::vector<std::uint8_t> chances() {
    random_source random(22);
    std::vector<std::uint8_t> shown(static_cast<std::size_t>(length * length));
    for (std::uint8_t& pair : shown) pair = random.chance(0.7) ? 1 : 0;
    return shown;
  }

  std::vector<float> bias = bells(heads * length * length, 21);
  std::vector<std::uint8_t> mask = chances();
  std::vector<float> sinks = bells(heads, 23);
};

/// A causal call of one entry, its selection and its gradient.
struct selected_call {
  tessera::deepseek_attn_args args() {
    return {.ckv = view(ckv.data(), {1, length, latent}),
            .w_kc = view(w_kc.data(), {latent, heads, nope}),
            .w_vc = view(w_vc.data(), {latent, heads, value}),
            .k_pe = view(k_pe.data(), {1, length, rope}),
            .q = view(q.data(), {1, length, heads, width}),
            .out = view(out.data(), {1, length, heads, value}),
            .lse = view(lse.data(), {1, heads, length})};
  }
  void select(const tessera::deepseek_attn_options& options, std::string_view row) {
    tessera::deepseek_attn_args with = args();
    slots = std::min(options.index_topk, length) + (options.force_self ? 1 : 0);
    indices.assign(static_cast<std::size_t>(length * slots), -7);
    with.q_index = view(q_index.data(), {1, length, index_heads, index_width});
    with.k_index = view(k_index.data(), {1, length, index_width});
    with.index_weights = view(index_weights.data(), {1, length, index_heads});
    with.selected_indices = view(indices.data(), {1, length, slots});
    if (scores != nullptr) scores->give(with);
    const auto done = tessera::deepseek_attn(with, options, {.row = row});
    ASSERT_TRUE(done) << done.message();
  }
  void run_given(std::string_view row) {
    tessera::deepseek_attn_args with = args();
    with.indices = view(indices.data(), {1, length, slots});
    const auto done = tessera::deepseek_attn(with, {.causal = true}, {.row = row});
    ASSERT_TRUE(done) << done.message();
  }
  void run_backward(std::string_view row) {
    tessera::deepseek_attn_args with = args();
    with.indices = view(indices.data(), {1, length, slots});
    with.d_out = view(d_out.data(), {1, length, heads, value});
    with.d_ckv = view(d_ckv.data(), {1, length, latent});
    with.d_w_kc = view(d_w_kc.data(), {latent, heads, nope});
    with.d_w_vc = view(d_w_vc.data(), {latent, heads, value});
    with.d_k_pe = view(d_k_pe.data(), {1, length, rope});
    with.d_q = view(d_q.data(), {1, length, heads, width});
    const auto done = tessera::deepseek_attn_backward(with, {.causal = true}, {.row = row});
    ASSERT_TRUE(done) << done.message();
  }

  std::vector<float> ckv = bells(length * latent, 1), k_pe = bells(length * rope, 2);
  std::vector<float> q = bells(length * heads * width, 3);
  std::vector<float> w_kc = bells(latent * heads * nope, 4);
  std::vector<float> w_vc = bells(latent * heads * value, 5);
  std::vector<float> q_index = bells(length * index_heads * index_width, 6);
  std::vector<float> k_index = bells(length * index_width, 7);
  std::vector<float> index_weights = bells(length * index_heads, 8);
  std::vector<float> d_out = bells(length * heads * value, 9);
  std::vector<float> out = std::vector<float>(d_out.size());
  std::vector<float> lse = std::vector<float>(static_cast<std::size_t>(length * heads));
  std::vector<float> d_ckv = ckv, d_k_pe = k_pe, d_q = q, d_w_kc = w_kc, d_w_vc = w_vc;
  std::vector<std::int32_t> indices;
  std::int64_t slots = 0;
  score_tensors* scores = nullptr;  ///< of a call that has them
};

bool all_finite(const std::vector<float>& numbers) {
  return std::ranges::all_of(numbers, [](float number) { return std::isfinite(number); });
}

class selected_attention : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    for (const tessera::instance& row : tessera::latent_attention_registry()) {
      if (row.name == forward && runs_here(row.target)) return;
    }
    GTEST_SKIP() << "no such instructions here";
  }
  static std::string row(std::string_view kind) {
    return "latent_attention." + std::string(GetParam()) + "." + std::string(kind);
  }
  const std::string forward = row("selected.forward"), backward = row("selected.backward");
};

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
  const tessera::deepseek_attn_args same = plain.args();
  const auto done = tessera::flash_mla({.ckv = same.ckv,
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
  tessera::deepseek_attn_args args = all.args();
  scores.give(args);
  for (std::int32_t t = 0; t < length; ++t) {
    for (std::int32_t key = 0; key < length; ++key) all.indices.push_back(key);
  }
  args.indices = view(all.indices.data(), {1, length, length});
  const auto done = tessera::deepseek_attn(
      args, score_tensors::options<tessera::deepseek_attn_options>(), {.row = forward});
  ASSERT_TRUE(done) << done.message();

  selected_call plain;
  const tessera::deepseek_attn_args same = plain.args();
  tessera::flash_mla_args dense{.ckv = same.ckv,
                                .w_kc = same.w_kc,
                                .w_vc = same.w_vc,
                                .k_pe = same.k_pe,
                                .q = same.q,
                                .out = same.out,
                                .lse = same.lse};
  scores.give(dense);
  const auto done_plain =
      tessera::flash_mla(dense, score_tensors::options<tessera::flash_mla_options>(),
                         {.row = row("expanded.forward")});
  ASSERT_TRUE(done_plain) << done_plain.message();
  EXPECT_EQ(all.out, plain.out);
  EXPECT_EQ(all.lse, plain.lse);
}

TEST_P(selected_attention, what_becomes_of_scores_does_not_change_a_selection) {
  score_tensors scores;
  selected_call plain, other;
  plain.select({.causal = true, .index_topk = topk}, forward);
  auto wanted = score_tensors::options<tessera::deepseek_attn_options>();
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

INSTANTIATE_TEST_SUITE_P(backends, selected_attention,
                         testing::Values("cpu_generic", "cpu_avx2", "cpu_avx512"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
