// What keys in pages are besides a formula: where pages lie, what batch a sequence is in and how
// many threads there are change no bit, and a plan serves other lengths and other pages.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/flash_attention.hpp>
#include <tessera/page_attention.hpp>

#include "tests/support/random.hpp"

namespace tessera::support {
namespace {

constexpr std::int64_t sequences = 3, q_heads = 8, kv_heads = 2, head_dim = 64, page_size = 16,
                       slots = 40, pages = sequences * slots + 5;
constexpr std::int64_t token = kv_heads * head_dim;

std::vector<float> bells(std::int64_t count, std::uint64_t seed) {
  random_source random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = random.bell();
  return values;
}

/// Sequences whose page m is number first + m * step modulo the pages of the pool, which is laid
/// out as PTHD; the keys themselves do not depend on where they lie.
struct paged_call {
  std::vector<float> q = bells(sequences * q_heads * head_dim, 1);
  std::vector<float> keys = bells(sequences * slots * page_size * token, 2);
  std::vector<float> values = bells(sequences * slots * page_size * token, 3);
  std::vector<float> k_pages, v_pages, out = std::vector<float>(q.size(), -1.0f);
  std::vector<std::int32_t> table = std::vector<std::int32_t>(sequences * slots);
  std::vector<std::int32_t> lengths{611, 0, slots* page_size};

  explicit paged_call(std::int64_t step) {
    k_pages.assign(pages * page_size * token, NAN);
    v_pages.assign(pages * page_size * token, INFINITY);
    for (std::int64_t at = 0; at < sequences * slots; ++at) {
      const std::int64_t page = (3 + at * step) % pages;
      table[static_cast<std::size_t>(at)] = static_cast<std::int32_t>(page);
      const auto from = at * page_size * token, to = page * page_size * token;
      std::copy_n(keys.begin() + from, page_size * token, k_pages.begin() + to);
      std::copy_n(values.begin() + from, page_size * token, v_pages.begin() + to);
    }
  }
  page_attention_args args() {
    return {.q = view(q.data(), {sequences, q_heads, head_dim}),
            .k_pages = view(k_pages.data(), {pages, page_size, kv_heads, head_dim}),
            .v_pages = view(v_pages.data(), {pages, page_size, kv_heads, head_dim}),
            .block_table = view(table.data(), {sequences, slots}),
            .seqlens_k = view(lengths.data(), {sequences}),
            .out = view(out.data(), {sequences, q_heads, head_dim})};
  }
};
constexpr page_attention_options in_order_of_tokens{.pool_layout = page_layout::PTHD};

TEST(pages, where_they_lie_changes_no_bit) {
  paged_call near(1), far(7);
  ASSERT_TRUE(page_attention(near.args(), in_order_of_tokens));
  ASSERT_TRUE(page_attention(far.args(), in_order_of_tokens));
  EXPECT_EQ(near.out, far.out);
}

TEST(pages, are_the_same_attention_as_one_piece) {
  paged_call paged(7);
  ASSERT_TRUE(page_attention(paged.args(), in_order_of_tokens));
  std::vector<float> out(paged.q.size(), -1.0f);
  const auto tokens = [](std::vector<float>& from) {
    return view(from.data(), {sequences, slots * page_size, kv_heads, head_dim});
  };
  ASSERT_TRUE(flash_attention({.q = view(paged.q.data(), {sequences, 1, q_heads, head_dim}),
                               .k = tokens(paged.keys),
                               .v = tokens(paged.values),
                               .seqlens_k = view(paged.lengths.data(), {sequences}),
                               .out = view(out.data(), {sequences, 1, q_heads, head_dim})}));
  for (std::size_t at = 0; at < out.size(); ++at) EXPECT_NEAR(paged.out[at], out[at], 1e-5f) << at;
}

TEST(pages, neither_threads_nor_batch_change_a_bit) {
  paged_call whole(7);
  ASSERT_TRUE(page_attention(whole.args(), in_order_of_tokens, {.threads = 1}));
  for (const int threads : {2, 3, 8}) {
    paged_call again(7);
    ASSERT_TRUE(page_attention(again.args(), in_order_of_tokens, {.threads = threads}));
    EXPECT_EQ(whole.out, again.out) << threads << " threads";
  }
  paged_call last(7);
  page_attention_args args = last.args();
  const std::int64_t row = q_heads * head_dim;
  args.q = view(last.q.data() + 2 * row, {1, q_heads, head_dim});
  args.out = view(last.out.data() + 2 * row, {1, q_heads, head_dim});
  args.block_table = view(last.table.data() + 2 * slots, {1, slots});
  args.seqlens_k = view(last.lengths.data() + 2, {1});
  ASSERT_TRUE(page_attention(args, in_order_of_tokens));
  EXPECT_TRUE(std::equal(whole.out.begin() + 2 * row, whole.out.end(), last.out.begin() + 2 * row));
}

TEST(pages, a_plan_serves_other_lengths_and_pages) {
  paged_call first(1);
  const auto planned = plan(problem_of(first.args(), in_order_of_tokens));
  ASSERT_TRUE(planned) << planned.message();
  for (const std::int64_t step : {7, 11}) {
    paged_call now(step);
    now.lengths = {static_cast<std::int32_t>(step), 64, 0};
    ASSERT_TRUE(planned->run(now.args()));
    const std::vector<float> ran = now.out;
    ASSERT_TRUE(page_attention(now.args(), in_order_of_tokens));
    EXPECT_EQ(ran, now.out);
  }
  paged_call wrong(1);
  wrong.table[1] = pages;
  EXPECT_EQ(planned->run(wrong.args()).message(),
            "block_table: entry 0,1 is 125, must be 0 to 124: there are 125 pages");
  wrong.lengths[0] = 16;
  EXPECT_TRUE(planned->run(wrong.args())) << "nobody uses that entry now";
}

TEST(pages, a_window_leaves_the_last_keys) {
  paged_call paged(7);
  page_attention_options last_token = in_order_of_tokens;
  last_token.window_left = 0;
  ASSERT_TRUE(page_attention(paged.args(), last_token));
  const std::int64_t position = paged.lengths[0] - 1;
  for (std::int64_t h = 0; h < q_heads; ++h) {
    const float* value =
        paged.values.data() + position * token + h / (q_heads / kv_heads) * head_dim;
    for (std::int64_t d = 0; d < head_dim; ++d) {
      EXPECT_NEAR(paged.out[static_cast<std::size_t>(h * head_dim + d)], value[d], 1e-6f);
    }
  }
}

TEST(pages, slots_of_one_axis_are_the_tokens_of_pages) {
  paged_call paged(7), slotted(7);
  ASSERT_TRUE(page_attention(paged.args(), in_order_of_tokens));
  page_attention_args args = slotted.args();
  for (tensor_view* pool : {&args.k_pages, &args.v_pages}) {
    *pool = view(static_cast<float*>(pool->data), {pages * page_size, kv_heads, head_dim});
  }
  const page_attention_options in_slots{.pool_layout = page_layout::PT_HD, .page_size = page_size};
  ASSERT_TRUE(decode_attention(args, in_slots));
  EXPECT_EQ(paged.out, slotted.out);
  EXPECT_EQ(decode_attention(args, {.pool_layout = page_layout::PT_HD}).message(),
            "page_size: is 0, (PT)HD tensors need one of 1 to 2147483647");
  EXPECT_EQ(decode_attention(args, {.pool_layout = page_layout::PT_HD, .page_size = 7}).message(),
            "k_pages: slots is 2000, not a multiple of page_size, which is 7");
}

/// Attention of `count` tokens of a prompt from token `first` on, whose keys lie in the pages of
/// sequence 0.
std::vector<float> prefilled(paged_call& paged, const std::vector<float>& prompt,
                             std::int64_t first, std::int64_t count) {
  std::vector<float> out(static_cast<std::size_t>(count * q_heads * head_dim), -1.0f);
  const auto length = static_cast<std::int32_t>(first + count);
  page_attention_args args = paged.args();
  args.q = view(prompt.data() + first * q_heads * head_dim, {count, q_heads, head_dim});
  args.out = view(out.data(), {count, q_heads, head_dim});
  args.block_table = view(paged.table.data(), {1, slots});
  args.seqlens_k = view(&length, {1});
  const status done = prefill_page_attention(args, in_order_of_tokens);
  EXPECT_TRUE(done) << done.message();
  return out;
}

TEST(pages, chunks_of_a_prompt_are_its_rows) {
  constexpr std::int64_t tokens = 130, cut = 47;
  paged_call paged(7);
  const std::vector<float> prompt = bells(tokens * q_heads * head_dim, 5);
  std::vector<float> expected(prompt.size());
  ASSERT_TRUE(flash_attention({.q = view(prompt.data(), {1, tokens, q_heads, head_dim}),
                               .k = view(paged.keys.data(), {1, tokens, kv_heads, head_dim}),
                               .v = view(paged.values.data(), {1, tokens, kv_heads, head_dim}),
                               .out = view(expected.data(), {1, tokens, q_heads, head_dim})},
                              {.causal = true}));
  std::vector<float> out = prefilled(paged, prompt, 0, cut);
  const std::vector<float> rest = prefilled(paged, prompt, cut, tokens - cut);
  out.insert(out.end(), rest.begin(), rest.end());
  ASSERT_EQ(out.size(), expected.size());
  for (std::size_t at = 0; at < out.size(); ++at) EXPECT_NEAR(out[at], expected[at], 1e-5f) << at;
}

/// The last two sequences share pages.
struct sharing_call : paged_call {
  std::vector<std::int32_t> groups{0, 1, 3}, shared{0, 30};

  sharing_call() : paged_call(7) {
    lengths = {611, 500, slots * page_size};
    std::copy_n(table.begin() + slots, shared[1], table.begin() + 2 * slots);
  }
  page_attention_args args_with_groups() {
    page_attention_args all = args();
    all.cu_prefix_seqs = view(groups.data(), {3});
    all.prefix_pages = view(shared.data(), {2});
    return all;
  }
  std::string refusal() { return page_attention(args_with_groups(), in_order_of_tokens).message(); }
};

TEST(shared_pages, that_are_not_the_same_are_refused) {
  sharing_call call;
  EXPECT_EQ(call.refusal(), "");
  call.table[2 * slots + 29] = 3;
  EXPECT_EQ(call.refusal(),
            "block_table: entry 2,29 is 3, entry 1,29 is 111; prefix_pages says that they are the "
            "same");
  call.shared[1] = 29;
  EXPECT_EQ(call.refusal(), "");
  call.shared[1] = 32;
  EXPECT_EQ(call.refusal(),
            "prefix_pages: entry 1 is 32, sequence 1 has 31 whole pages before its rows");
  call.shared[1] = -1;
  EXPECT_EQ(call.refusal(), "prefix_pages: entry 1 is -1, must be at least 0");
  call.groups[2] = 4;
  EXPECT_EQ(call.refusal(), "cu_prefix_seqs: the last entry is 4, q has 3 rows");
}

TEST(shared_pages, need_groups_and_their_pages) {
  sharing_call call;
  page_attention_args args = call.args_with_groups();
  args.prefix_pages = {};
  EXPECT_EQ(page_attention(args, in_order_of_tokens).message(),
            "cu_prefix_seqs: is given, prefix_pages is not; it says how many pages the sequences "
            "of a group share");
  args = call.args_with_groups();
  args.cu_prefix_seqs = {};
  EXPECT_EQ(page_attention(args, in_order_of_tokens).message(),
            "prefix_pages: is given, cu_prefix_seqs is not; it says which sequences share pages");
}

TEST(shared_pages, are_each_sequences_own_where_bits_must_not_depend_on_others) {
  sharing_call call;
  const context invariant{.policy = selection_policy{.promise = bits_promise::batch_invariant}};
  ASSERT_TRUE(page_attention(call.args(), in_order_of_tokens, invariant));
  const std::vector<float> alone = call.out;
  ASSERT_TRUE(page_attention(call.args_with_groups(), in_order_of_tokens, invariant));
  EXPECT_EQ(call.out, alone);
}

}  // namespace
}  // namespace tessera::support
