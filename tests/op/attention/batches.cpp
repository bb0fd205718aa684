// What batches over pages are besides a formula: a prompt that is written in chunks leaves the same
// pool as one that is written at once, and sequences do not depend on who else is in the batch.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/unified_attention.hpp>

#include "tests/support/random.hpp"

namespace tessera::support {
namespace {

constexpr std::int64_t q_heads = 8, kv_heads = 2, head_dim = 64, page_size = 16, slots = 6;
constexpr std::int64_t q_token = q_heads * head_dim, token = kv_heads * head_dim;
constexpr std::int64_t prompt = 75;

std::vector<float> bells(std::int64_t count, std::uint64_t seed) {
  random_source random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = random.bell();
  return values;
}

/// A pool in which nothing lies, and a prompt of one sequence.
struct prompt_call {
  std::vector<float> q = bells(prompt * q_token, 1), k = bells(prompt * token, 2),
                     v = bells(prompt * token, 3);
  std::vector<float> k_pages = std::vector<float>(9 * page_size * token, NAN), v_pages = k_pages;
  std::vector<float> out = std::vector<float>(prompt * q_token, -1.0f);
  std::vector<std::int32_t> table{7, 2, 4, 0, 8, -1};

  /// Tokens [first, end) of the prompt.
  status write(std::int64_t first, std::int64_t end, const context& where = {}) {
    const std::int64_t rows = end - first;
    std::int32_t offsets[] = {0, static_cast<std::int32_t>(rows)};
    std::int32_t length = static_cast<std::int32_t>(end);
    const unified_attention_args args{
        .q = view(q.data() + first * q_token, {rows, q_heads, head_dim}),
        .k_pages = view(k_pages.data(), {9, page_size, kv_heads, head_dim}),
        .v_pages = view(v_pages.data(), {9, page_size, kv_heads, head_dim}),
        .block_table = view(table.data(), {1, slots}),
        .seqlens_k = view(&length, {1}),
        .cu_seqlens_q = view(offsets, {2}),
        .k_new = view(k.data() + first * token, {rows, kv_heads, head_dim}),
        .v_new = view(v.data() + first * token, {rows, kv_heads, head_dim}),
        .out = view(out.data() + first * q_token, {rows, q_heads, head_dim})};
    return chunked_prefill_paged_decode(args, {}, where);
  }
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Batches, PromptsInChunksArePromptsAtOnce) {
  prompt_call whole;
  ASSERT_TRUE(whole.write(0, prompt));
  for (const std::int64_t chunk : {1, 16, 31}) {
    prompt_call parts;
    for (std::int64_t first = 0; first < prompt; first += chunk) {
      ASSERT_TRUE(parts.write(first, std::min(prompt, first + chunk)));
    }
    EXPECT_TRUE(same_bits(whole.k_pages, parts.k_pages)) << chunk;
    EXPECT_TRUE(same_bits(whole.v_pages, parts.v_pages)) << chunk;
    for (std::size_t i = 0; i < whole.out.size(); ++i) {
      ASSERT_NEAR(whole.out[i], parts.out[i], 2e-5) << chunk << ": element " << i;
    }
  }
}

TEST(Batches, ThreadsChangeNoBit) {
  prompt_call first, second;
  ASSERT_TRUE(first.write(0, prompt, {.threads = 1}));
  ASSERT_TRUE(second.write(0, prompt, {.threads = 3}));
  EXPECT_TRUE(same_bits(first.out, second.out));
  EXPECT_TRUE(same_bits(first.k_pages, second.k_pages));
}

/// Three sequences of 1, 5 and 2 rows and so many keys.
struct batch {
  std::vector<float> q = bells(8 * q_token, 4), k_pages = bells(20 * page_size * token, 5),
                     v_pages = bells(20 * page_size * token, 6);
  std::vector<float> out = std::vector<float>(q.size(), -1.0f);
  std::vector<std::int32_t> table{3, 9, 1, -1, -1, -1, 4, 0, 2, 6, 8, 11, 12, 5, -1, -1, -1, -1};
  std::vector<std::int32_t> lengths{40, 90, 2}, offsets{0, 1, 6, 8};

  unified_attention_args args() {
    return {.q = view(q.data(), {8, q_heads, head_dim}),
            .k_pages = view(k_pages.data(), {20, page_size, kv_heads, head_dim}),
            .v_pages = view(v_pages.data(), {20, page_size, kv_heads, head_dim}),
            .block_table = view(table.data(), {3, slots}),
            .seqlens_k = view(lengths.data(), {3}),
            .cu_seqlens_q = view(offsets.data(), {4}),
            .out = view(out.data(), {8, q_heads, head_dim})};
  }
};

TEST(Batches, SequencesBehindTheCountHaveNoRows) {
  batch all, some;
  ASSERT_TRUE(unified_attention(all.args()));
  std::int32_t count = 2;
  some.lengths[2] = INT32_MAX;
  some.offsets[3] = -7;
  unified_attention_args args = some.args();
  args.num_seqs = view(&count, {1});
  ASSERT_TRUE(unified_attention(args));
  for (std::size_t i = 0; i < all.out.size(); ++i) {
    const bool used = i < 6 * q_token;
    ASSERT_EQ(some.out[i], used ? all.out[i] : 0.0f) << "element " << i;
  }
}

TEST(Batches, PlansServeOtherLengthsPagesAndCounts) {
  batch first;
  const auto planned = plan(problem_of(first.args()));
  ASSERT_TRUE(planned) << planned.message();
  ASSERT_TRUE(planned->run(first.args()));
  batch second;
  second.lengths = {17, 33, 96};
  second.offsets = {0, 4, 4, 7};
  second.table = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17};
  ASSERT_TRUE(planned->run(second.args()));
  const std::vector<float> by_plan = second.out;
  ASSERT_TRUE(unified_attention(second.args(), {}, {.row = planned->choice().row().data()}));
  EXPECT_TRUE(same_bits(by_plan, second.out));
  second.table[1] = 20;
  const status refused = planned->run(second.args());
  EXPECT_EQ(refused.message(), "block_table: entry 0,1 is 20, must be 0 to 19: there are 20 pages");
}

TEST(Batches, SlopesOfZeroAreNoneAndBiasesMayHideEveryKey) {
  batch plain, sloped;
  plain.lengths = sloped.lengths = {1, 5, 2};  // no keys but the tokens of the call
  std::vector<float> slopes(q_heads, 0.0f);
  unified_attention_args args = sloped.args();
  args.alibi_slopes = view(slopes.data(), {q_heads});
  ASSERT_TRUE(unified_attention(plain.args()));
  ASSERT_TRUE(unified_attention(args));
  for (std::size_t i = 0; i < plain.out.size(); ++i) {
    ASSERT_NEAR(plain.out[i], sloped.out[i], 1e-5) << "element " << i;
  }
  std::vector<float> hidden(25, -INFINITY);
  args.qq_bias = view(hidden.data(), {5, 5});
  ASSERT_TRUE(unified_attention(args));
  for (const float element : sloped.out) ASSERT_EQ(element, 0.0f);
}

}  // namespace
}  // namespace tessera::support
