// Masks inside real calls: what a mask becomes as options and vectors gives the same result as the
// same mask written out.
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/flash_attention.hpp>

#include "tests/unit/mask_info/oracle.hpp"

namespace tessera::test {
namespace {

/// A small problem with memory of its own.
struct problem {
  std::int64_t batch, q_len, kv_len;
  std::vector<float> q, k, v;

  problem(std::int64_t b, std::int64_t sq, std::int64_t sk)
      : batch(b),
        q_len(sq),
        kv_len(sk),
        q(drawn(b * sq * 2 * 16, 1)),
        k(drawn(b * sk * 16, 2)),
        v(drawn(b * sk * 16, 3)) {}

  static std::vector<float> drawn(std::int64_t size, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<float> values(static_cast<std::size_t>(size));
    for (float& value : values) value = float(random() % 2001) / 500.0f - 2.0f;
    return values;
  }
  flash_attention_args args(std::vector<float>& out, std::vector<float>& lse) const {
    out.assign(q.size(), std::numeric_limits<float>::quiet_NaN());
    lse.assign(static_cast<std::size_t>(batch * 2 * q_len), 0.0f);
    flash_attention_args made;
    made.q = view(q.data(), {batch, q_len, 2, 16});
    made.k = view(k.data(), {batch, kv_len, 1, 16});
    made.v = view(v.data(), {batch, kv_len, 1, 16});
    made.out = view(out.data(), {batch, q_len, 2, 16});
    made.lse = view(lse.data(), {batch, 2, q_len});
    return made;
  }
};

void expect_same_result(const mask_info& mask, const problem& of, bool tensor_needed) {
  std::vector<float> out, lse, expected_out, expected_lse;
  flash_attention_args args = of.args(out, lse);
  flash_attention_options options;
  const auto kept = mask.apply_to(args, options);
  ASSERT_TRUE(kept) << kept.message();
  EXPECT_EQ(args.mask.present(), tensor_needed);
  const status done = flash_attention(args, options);
  ASSERT_TRUE(done) << done.message();

  const dense_mask written = mask.attention_mask();
  flash_attention_args dense = of.args(expected_out, expected_lse);
  dense.mask = written.view();
  const status also = flash_attention(dense);
  ASSERT_TRUE(also) << also.message();
  for (std::size_t at = 0; at < out.size(); ++at) {
    ASSERT_NEAR(out[at], expected_out[at], 1e-5) << at;  // unit-sized values, sums of 40 terms
  }
  for (std::size_t at = 0; at < lse.size(); ++at) {
    const bool same = lse[at] == expected_lse[at] || std::abs(lse[at] - expected_lse[at]) < 1e-5f;
    ASSERT_TRUE(same) << at << ": " << lse[at] << " and " << expected_lse[at];
  }
}

TEST(mask_in_calls, packed_documents_in_chunks) {
  const problem of(2, 40, 40);
  ids packing;
  for (std::int32_t token = 0; token < 80; ++token)
    packing.push_back(token % 40 > 36 ? -1 : token / 11);
  mask_info mask = need(mask_info::from_segments(view(packing.data(), {2, 40})));
  ASSERT_TRUE(mask.apply_chunked(7));
  expect_same_result(mask, of, false);
}

TEST(mask_in_calls, window_over_padded_rows) {
  const problem of(3, 12, 40);
  mask_info mask = need(mask_info::all_visible(3, 12, 40));
  ASSERT_TRUE(mask.apply_lengths(masks::per_batch({12, 5, 0}), masks::per_batch({40, 17, 9})));
  ASSERT_TRUE(mask.apply_causal());
  expect_same_result(mask, of, false);
  // The window's offset is that of the longest entry only: the tensor has to say it.
  ASSERT_TRUE(mask.apply_sliding_window(6, std::nullopt, 28));
  expect_same_result(mask, of, true);
}

TEST(mask_in_calls, decoding_from_a_cache) {
  const problem of(2, 2, 40);
  mask_info mask = need(mask_info::all_visible(2, 40, 40));
  ASSERT_TRUE(mask.apply_sliding_window(9, 0));
  ASSERT_TRUE(mask.apply_kv_lengths({33, 40}, 2));
  expect_same_result(mask, of, false);
}

TEST(mask_in_calls, images_in_causal_text) {
  const problem of(2, 40, 40);
  ids types(80, 0);
  for (const std::size_t at : {5u, 6u, 7u, 8u, 50u, 51u, 52u}) types[at] = 1;
  mask_info mask = need(mask_info::all_visible(2, 40, 40));
  ASSERT_TRUE(mask.apply_causal());
  ASSERT_TRUE(mask.apply_token_type_ids(view(types.data(), {2, 40})));
  expect_same_result(mask, of, true);
}

TEST(mask_in_calls, masks_by_head_with_an_offset_per_entry) {
  const problem of(2, 20, 40);
  std::vector<std::uint8_t> by_head(2 * 40, 1);
  for (std::size_t key = 0; key < 40; key += 3) by_head[key] = 0;
  mask_info mask = need(mask_info::all_visible(2, 20, 40));
  ASSERT_TRUE(mask.apply_mask(view(by_head.data(), {1, 2, 1, 40})));
  ASSERT_TRUE(mask.apply_causal({20, 3}));
  expect_same_result(mask, of, true);
}

}  // namespace
}  // namespace tessera::test
