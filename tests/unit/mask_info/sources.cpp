// Masks made from segments, validity vectors and mask tensors against their definitions.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/mask_info/oracle.hpp"

namespace tessera::test {
namespace {

TEST(mask_info, segments) {
  const ids q{0, 0, 1, 1, -1, 2, 2, 2, -1, -1}, kv{0, 1, -1, 5, 2, 2};
  const mask_info mask = need(mask_info::from_segments(ids_view(q, 2), ids_view(kv, 2)));
  oracle truth(2, 1, 5, 3);
  truth.keep([&](auto b, auto, auto i, auto j) {
    return q[std::size_t(b * 5 + i)] >= 0 &&
           q[std::size_t(b * 5 + i)] == kv[std::size_t(b * 3 + j)];
  });
  expect_says(mask, truth);
  expect_tiles(mask, truth, 2, 1);
  EXPECT_TRUE(lowered_without_tensor(mask));
  EXPECT_EQ(mask.segment_ids(), (segment_pair{q, kv}));
  EXPECT_FALSE(mask.is_self_attention());
  EXPECT_EQ(mask.q_valid(), (std::vector<std::uint8_t>{1, 1, 1, 1, 0, 1, 1, 1, 0, 0}));
  EXPECT_EQ(mask.kv_valid(), (std::vector<std::uint8_t>{1, 1, 0, 1, 1, 1}));
  EXPECT_EQ(mask.q_position_ids(), (ids{0, 1, 2, 3, 3, 0, 1, 2, 2, 2}));
}

TEST(mask_info, query_ids_serve_for_keys) {
  const ids q{0, 0, 1, -1};
  const mask_info mask = need(mask_info::from_segments(ids_view(q, 1)));
  EXPECT_TRUE(mask.is_self_attention());
  oracle truth(1, 1, 4, 4);
  truth.keep([&](auto, auto, auto i, auto j) {
    return q[std::size_t(i)] >= 0 && q[std::size_t(i)] == q[std::size_t(j)];
  });
  expect_says(mask, truth);
}

TEST(mask_info, rows_that_are_all_padding) {
  const ids q{-1, -1, -1, 0, 0, -1};
  const mask_info mask = need(mask_info::from_segments(ids_view(q, 2)));
  oracle truth(2, 1, 3, 3);
  truth.keep([&](auto b, auto, auto i, auto j) { return b == 1 && i < 2 && j < 2; });
  expect_says(mask, truth);
  EXPECT_EQ(mask.classify({0, 0, 0, 3, 0, 3}), tile_state::skip);
  EXPECT_EQ(mask.q_position_ids(), (ids{0, 0, 0, 0, 1, 1}));
}

TEST(mask_info, validity_vectors) {
  const std::vector<std::uint8_t> q{1, 0, 2, 1}, kv{1, 1, 0, 0, 0, 1};
  const mask_info mask =
      need(mask_info::from_validity(view(q.data(), {2, 2}), view(kv.data(), {2, 3})));
  oracle truth(2, 1, 2, 3);
  truth.keep([&](auto b, auto, auto i, auto j) {
    return q[std::size_t(b * 2 + i)] != 0 && kv[std::size_t(b * 3 + j)] != 0;
  });
  expect_says(mask, truth);
  EXPECT_EQ(mask.segment_ids(), (segment_pair{{0, -1, 0, 0}, {0, 0, -1, -1, -1, 0}}));
  EXPECT_TRUE(lowered_without_tensor(mask));
}

TEST(mask_info, a_rank_2_mask_is_padding) {
  const ids padding{1, 1, 0, 1, 0, 0};
  const tensor_view rank2 = ids_view(padding, 2);
  const mask_info self = need(mask_info::from_attention_mask(rank2));
  EXPECT_EQ(self.q_len(), 3);
  oracle truth(2, 1, 3, 3);
  truth.keep([&](auto b, auto, auto i, auto j) {
    return padding[std::size_t(b * 3 + i)] != 0 && padding[std::size_t(b * 3 + j)] != 0;
  });
  expect_says(self, truth);
  // Sq != Sk: every row is valid, keys are those of the mask.
  for (const std::int64_t q_len : {1, 2, 5}) {
    const mask_info cross = need(mask_info::from_attention_mask(rank2, q_len));
    oracle keys(2, 1, q_len, 3);
    keys.keep([&](auto b, auto, auto, auto j) { return padding[std::size_t(b * 3 + j)] != 0; });
    expect_says(cross, keys);
    EXPECT_TRUE(lowered_without_tensor(cross));
  }
}

TEST(mask_info, masks_of_rank_3_and_4) {
  std::vector<std::uint8_t> values(2 * 3 * 4 * 5);
  for (std::size_t at = 0; at < values.size(); ++at) values[at] = at % 3 != 1 ? 1 : 0;
  const mask_info rank4 = need(mask_info::from_attention_mask(view(values.data(), {2, 3, 4, 5})));
  EXPECT_EQ(rank4.heads(), 3);
  expect_says(rank4, oracle(2, 3, 4, 5).keep([&](auto b, auto h, auto i, auto j) {
    return values[std::size_t(((b * 3 + h) * 4 + i) * 5 + j)] != 0;
  }));
  const mask_info rank3 =
      need(mask_info::from_attention_mask(view(values.data(), {6, 4, 5}, {20, 1, 4})));
  EXPECT_EQ(rank3.heads(), 1);
  const oracle truth = oracle(6, 1, 4, 5).keep([&](auto b, auto, auto i, auto j) {
    return values[std::size_t(b * 20 + i + j * 4)] != 0;
  });
  expect_says(rank3, truth);
  expect_tiles(rank3, truth, 2, 2);
  EXPECT_FALSE(rank3.has_segment_ids());
}

TEST(mask_info, mask_tensors_broadcast_and_are_shared_with_the_call) {
  const std::vector<std::uint8_t> keys{1, 0, 1, 1}, rows{1, 0, 1};
  mask_info mask = need(mask_info::all_visible(2, 3, 4));
  ASSERT_TRUE(mask.apply_mask(view(keys.data(), {1, 1, 1, 4})));
  flash_attention_args args = call_of(mask);
  flash_attention_options options;
  const auto kept = mask.apply_to(args, options);
  ASSERT_TRUE(kept);
  EXPECT_EQ(args.mask.elements(), 4);  // not written out
  ASSERT_TRUE(mask.apply_mask(view(rows.data(), {1, 1, 3, 1})));
  expect_says(mask, oracle(2, 1, 3, 4).keep([&](auto, auto, auto i, auto j) {
    return keys[std::size_t(j)] != 0 && rows[std::size_t(i)] != 0;
  }));
  EXPECT_EQ(mask.q_valid(), (std::vector<std::uint8_t>{1, 0, 1, 1, 0, 1}));
  EXPECT_EQ(mask.kv_valid(), (std::vector<std::uint8_t>{1, 0, 1, 1, 1, 0, 1, 1}));
  EXPECT_EQ(mask.segment_ids().q, (ids{0, -1, 0, 0, -1, 0}));
}

TEST(mask_info, random_masks_have_the_density_asked_for) {
  const mask_info mask = need(mask_info::from_random(2, 50, 60, 0.25, 7));
  const dense_mask drawn = mask.attention_mask();
  const auto count = std::count(drawn.visible.begin(), drawn.visible.end(), 1);
  EXPECT_NEAR(double(count) / double(drawn.visible.size()), 0.75, 0.03);
  EXPECT_EQ(drawn.visible,
            need(mask_info::from_random(2, 50, 60, 0.25, 7)).attention_mask().visible);
  EXPECT_NE(drawn.visible,
            need(mask_info::from_random(2, 50, 60, 0.25, 8)).attention_mask().visible);
  expect_says(need(mask_info::from_random(1, 4, 4, 0.0)), oracle(1, 1, 4, 4));
  EXPECT_EQ(need(mask_info::from_random(1, 4, 4, 1.0)).classify({0, 0, 0, 4, 0, 4}),
            tile_state::skip);
}

TEST(mask_info, views_live_as_long_as_the_storage) {
  flash_attention_args args;
  flash_attention_options options;
  mask_storage storage;
  {
    const ids packing{0, 0, 1, 1};
    mask_info mask = need(mask_info::from_segments(ids_view(packing, 1)));
    args = call_of(mask);
    storage = need(mask.apply_to(args, options));
  }
  EXPECT_EQ(static_cast<const std::int32_t*>(args.q_segment_ids.data)[2], 1);
}

}  // namespace
}  // namespace tessera::test
