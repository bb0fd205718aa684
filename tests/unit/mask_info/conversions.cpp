// Masks to segment ids, ids to positions, masks to biases.
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/mask_info/oracle.hpp"

namespace tessera::test {
namespace {

TEST(mask_info, an_id_that_comes_back_attends_and_its_positions_restart) {
  const ids q{3, 3, 0, 0, 0, 3, -1, 3};
  const mask_info mask = need(mask_info::from_segments(ids_view(q, 1)));
  EXPECT_TRUE(mask.visible(0, 0, 0, 5));
  EXPECT_TRUE(mask.visible(0, 0, 7, 1));
  const segment_pair positions = mask.positions();
  EXPECT_EQ(positions.q, (ids{0, 1, 0, 1, 2, 0, -1, 0}));
  const std::int32_t last = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(positions.kv, (ids{0, 1, 0, 1, 2, 0, last, 0}));

  mask_info causal = mask;
  ASSERT_TRUE(causal.apply_causal_positions());
  oracle truth(1, 1, 8, 8);
  truth.keep([&](auto, auto, auto i, auto j) {
    return q[std::size_t(i)] >= 0 && q[std::size_t(i)] == q[std::size_t(j)] &&
           positions.q[std::size_t(i)] >= positions.kv[std::size_t(j)];
  });
  expect_says(causal, truth);
  expect_tiles(causal, truth, 3, 2);
}

TEST(mask_info, positions_restart_at_each_row) {
  EXPECT_EQ(positions_of(ids{1, 1, 1, 1, 1, 1}, 3, -1), (ids{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(positions_of(ids{-1, 0, -1}, 3, -1), (ids{-1, 0, -1}));
  EXPECT_EQ(positions_of(ids{}, 0, -1), ids{});
}

TEST(mask_info, given_positions_are_kept_and_used) {
  const ids segments{0, 0, 0}, positions{5, 3, 4};
  mask_info mask =
      need(mask_info::from_segments(ids_view(segments, 1), {}, ids_view(positions, 1)));
  EXPECT_EQ(mask.positions(), (segment_pair{positions, positions}));
  expect_says(mask, oracle(1, 1, 3, 3));
  ASSERT_TRUE(mask.apply_causal_positions());
  expect_says(mask, oracle(1, 1, 3, 3).keep([&](auto, auto, auto i, auto j) {
    return positions[std::size_t(j)] <= positions[std::size_t(i)];
  }));
}

TEST(mask_info, bias_is_minus_infinity_where_hidden) {
  mask_info mask = need(mask_info::all_visible(1, 2, 2));
  ASSERT_TRUE(mask.apply_causal());
  const float hidden = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(mask.bias(), (std::vector<float>{0, hidden, 0, 0}));
}

TEST(mask_info, block_masks_have_ids_in_any_order) {
  const ids q{0, 0, 1, -1, 2}, kv{2, 1, 0, 0, -1, 1};
  const mask_info mask = need(mask_info::from_segments(ids_view(q, 1), ids_view(kv, 1)));
  const auto found = segment_ids_of(mask.attention_mask());
  ASSERT_TRUE(found) << found.message();
  EXPECT_EQ(*found, (segment_pair{q, kv}));
}

TEST(mask_info, masks_that_are_no_blocks_have_no_ids) {
  mask_info causal = need(mask_info::all_visible(1, 3, 3));
  ASSERT_TRUE(causal.apply_causal());
  EXPECT_EQ(causal.exact_segment_ids().message(),
            "mask: element [0,0,1,0] is 1, segment ids would make it 0");
  std::vector<std::uint8_t> by_head{1, 0, 0, 1, 1, 1, 1, 1};
  const mask_info heads = need(mask_info::from_attention_mask(view(by_head.data(), {1, 2, 2, 2})));
  EXPECT_EQ(heads.exact_segment_ids().message(),
            "mask: element [0,1,0,1] is 1, segment ids would make it 0");
}

}  // namespace
}  // namespace tessera::test
