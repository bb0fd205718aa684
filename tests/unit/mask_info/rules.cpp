// Every rule that changes or joins masks against its definition.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/mask_info/oracle.hpp"

namespace tessera::test {
namespace {

TEST(mask_info, all_visible) {
  const mask_info mask = need(mask_info::all_visible(2, 3, 5));
  expect_says(mask, oracle(2, 1, 3, 5));
  EXPECT_TRUE(lowered_without_tensor(mask));
  EXPECT_EQ(mask.classify({0, 0, 0, 3, 0, 5}), tile_state::full);
}

TEST(mask_info, causal_by_offset_and_by_alignment) {
  for (const auto& [q, kv] : {std::pair{4, 4}, {3, 7}, {7, 3}, {1, 5}, {5, 1}}) {
    for (const std::int64_t offset : {-9, -1, 0, 1, 2, 9}) {
      mask_info mask = need(mask_info::all_visible(2, q, kv));
      ASSERT_TRUE(mask.apply_causal(offset));
      oracle truth(2, 1, q, kv);
      truth.keep([&](auto, auto, auto i, auto j) { return j <= i + offset; });
      expect_says(mask, truth);
      expect_tiles(mask, truth, 2, 3);
    }
    mask_info top_left = need(mask_info::all_visible(2, q, kv));
    ASSERT_TRUE(top_left.apply_causal(alignment::top_left));
    const std::int64_t shift = kv - q;
    mask_info bottom_right = need(mask_info::all_visible(2, q, kv));
    ASSERT_TRUE(bottom_right.apply_causal());
    oracle truth(2, 1, q, kv);
    expect_says(top_left, oracle(truth).keep([](auto, auto, auto i, auto j) { return j <= i; }));
    expect_says(bottom_right,
                oracle(truth).keep([&](auto, auto, auto i, auto j) { return j <= i + shift; }));
    EXPECT_TRUE(lowered_without_tensor(top_left));
    EXPECT_TRUE(lowered_without_tensor(bottom_right));
  }
}

TEST(mask_info, causal_lowers_to_the_option) {
  mask_info mask = need(mask_info::all_visible(1, 3, 7));
  ASSERT_TRUE(mask.apply_causal());
  flash_attention_args args = call_of(mask);
  flash_attention_options options;
  ASSERT_TRUE(mask.apply_to(args, options));
  EXPECT_TRUE(options.causal);
  EXPECT_EQ(options.causal_alignment, alignment::bottom_right);
  EXPECT_FALSE(options.window_left || options.window_right);

  mask_info first = need(mask_info::all_visible(1, 3, 7));
  ASSERT_TRUE(first.apply_causal(0));
  flash_attention_options top_left;
  args = call_of(first);
  ASSERT_TRUE(first.apply_to(args, top_left));
  EXPECT_TRUE(top_left.causal);
  EXPECT_EQ(top_left.causal_alignment, alignment::top_left);
}

TEST(mask_info, offsets_per_entry) {
  mask_info mask = need(mask_info::all_visible(3, 4, 6));
  const std::vector<std::int64_t> offset{0, 2, -3};
  ASSERT_TRUE(mask.apply_causal(offset));
  oracle truth(3, 1, 4, 6);
  truth.keep([&](auto b, auto, auto i, auto j) { return j <= i + offset[std::size_t(b)]; });
  expect_says(mask, truth);
  expect_tiles(mask, truth, 2, 2);
  EXPECT_FALSE(lowered_without_tensor(mask));
  ASSERT_TRUE(mask.apply_sliding_window(1, std::nullopt, offset));
  truth.keep([&](auto b, auto, auto i, auto j) { return j >= i + offset[std::size_t(b)] - 1; });
  expect_says(mask, truth);

  const std::vector<std::int64_t> same{2, 2, 2};
  mask_info equal = need(mask_info::all_visible(3, 4, 6));
  ASSERT_TRUE(equal.apply_causal(same));
  EXPECT_TRUE(lowered_without_tensor(equal));
}

TEST(mask_info, sliding_window) {
  const std::optional<std::int64_t> sides[] = {std::nullopt, 0, 1, 3, 100};
  for (const auto left : sides) {
    for (const auto right : sides) {
      for (const std::int64_t offset : {-2, 0, 3, 4}) {
        mask_info mask = need(mask_info::all_visible(1, 5, 8));
        ASSERT_TRUE(mask.apply_sliding_window(left, right, offset));
        oracle truth(1, 1, 5, 8);
        truth.keep([&](auto, auto, auto i, auto j) {
          return (!left || j >= i + offset - *left) && (!right || j <= i + offset + *right);
        });
        expect_says(mask, truth);
        expect_tiles(mask, truth, 2, 3);
        EXPECT_TRUE(lowered_without_tensor(mask) || (offset != 0 && offset != 3));
      }
    }
  }
}

TEST(mask_info, window_and_causal_meet_in_one_band) {
  mask_info mask = need(mask_info::all_visible(1, 6, 6));
  ASSERT_TRUE(mask.apply_sliding_window(2, 2));
  ASSERT_TRUE(mask.apply_causal());
  flash_attention_args args = call_of(mask);
  flash_attention_options options;
  ASSERT_TRUE(mask.apply_to(args, options));
  EXPECT_TRUE(options.causal);
  EXPECT_EQ(options.window_left, 2);
  EXPECT_EQ(options.window_right, std::nullopt);
  EXPECT_FALSE(args.mask.present());
}

TEST(mask_info, chunks_keep_segments_and_are_causal) {
  const ids packing{0, 0, 0, 0, 1, 1, 1, -1};
  for (const std::int64_t size : {1, 2, 3, 8, 100}) {
    for (const std::int64_t offset : {-3, 0, 1, 5}) {
      mask_info mask = need(mask_info::from_segments(ids_view(packing, 1)));
      ASSERT_TRUE(mask.apply_chunked(size, offset));
      oracle truth(1, 1, 8, 8);
      truth.keep([&](auto, auto, auto i, auto j) {
        return floor_of(i + offset, size) == floor_of(j, size) && j <= i + offset &&
               packing[std::size_t(i)] >= 0 && packing[std::size_t(i)] == packing[std::size_t(j)];
      });
      expect_says(mask, truth);
      expect_tiles(mask, truth, 3, 2);
      EXPECT_EQ(mask.segment_ids(), (segment_pair{packing, packing}));
      EXPECT_TRUE(lowered_without_tensor(mask) || offset != 0);
    }
  }
  const mask_info alone = need(mask_info::chunked(4, 2, 10, 10));
  EXPECT_TRUE(lowered_without_tensor(alone));
  EXPECT_EQ(alone.classify({0, 0, 0, 4, 4, 8}), tile_state::skip);
  EXPECT_EQ(alone.classify({0, 0, 7, 8, 4, 8}), tile_state::full);
}

TEST(mask_info, one_chunk_of_everything_adds_no_segments) {
  const mask_info mask = need(mask_info::chunked(8192, 1, 16, 16));
  flash_attention_args args = call_of(mask);
  flash_attention_options options;
  ASSERT_TRUE(mask.apply_to(args, options));
  EXPECT_TRUE(options.causal);
  EXPECT_FALSE(args.q_segment_ids.present());
}

TEST(mask_info, image_blocks_in_a_causal_text) {
  // Type 0 is text, 1 and 2 are images whose tokens see each other both ways.
  const ids types{0, 1, 1, 1, 0, 2, 2, 0};
  mask_info mask = need(mask_info::all_visible(1, 8, 8));
  ASSERT_TRUE(mask.apply_causal());
  ASSERT_TRUE(mask.apply_token_type_ids(ids_view(types, 1)));
  oracle truth(1, 1, 8, 8);
  truth.keep([](auto, auto, auto i, auto j) { return j <= i; })
      .add([&](auto, auto, auto i, auto j) {
        return types[std::size_t(i)] > 0 && types[std::size_t(i)] == types[std::size_t(j)];
      });
  expect_says(mask, truth);
  expect_tiles(mask, truth, 2, 2);
  EXPECT_TRUE(mask.visible(0, 0, 1, 3));
  EXPECT_FALSE(mask.visible(0, 0, 0, 4));

  // Segments applied after the union restrict both.
  const ids packing{0, 0, 0, 1, 1, 1, 1, -1};
  ASSERT_TRUE(mask.apply_segments(ids_view(packing, 1)));
  truth.keep([&](auto, auto, auto i, auto j) {
    return packing[std::size_t(i)] >= 0 && packing[std::size_t(i)] == packing[std::size_t(j)];
  });
  expect_says(mask, truth);
  EXPECT_EQ(mask.segment_ids().q, packing);
}

TEST(mask_info, token_types_by_combination_and_zero_policy) {
  const ids q{0, 1, 2, -1}, kv{0, 0, 1, 2, -1};
  for (const auto zero : {zero_token_type::masked_in_q, zero_token_type::masked_in_kv,
                          zero_token_type::masked_in_both, zero_token_type::matches}) {
    const oracle::rule same = [&](auto, auto, auto i, auto j) {
      const auto type = q[std::size_t(i)];
      return type >= (zero == zero_token_type::matches ? 0 : 1) && type == kv[std::size_t(j)];
    };
    for (const auto combine : {token_type_combine::union_with, token_type_combine::intersect,
                               token_type_combine::replace}) {
      mask_info mask = need(mask_info::all_visible(1, 4, 5));
      ASSERT_TRUE(mask.apply_causal(0));
      ASSERT_TRUE(mask.apply_token_type_ids(ids_view(q, 1), ids_view(kv, 1), combine, zero));
      oracle truth(1, 1, 4, 5);
      if (combine != token_type_combine::replace) {
        truth.keep([](auto, auto, auto i, auto j) { return j <= i; });
      }
      combine == token_type_combine::union_with ? truth.add(same) : truth.keep(same);
      expect_says(mask, truth);
      expect_tiles(mask, truth, 2, 2);
      EXPECT_EQ(mask.has_segment_ids(), combine == token_type_combine::replace);
      EXPECT_EQ(lowered_without_tensor(mask), combine != token_type_combine::union_with);
    }
  }
}

TEST(mask_info, lengths_shift_the_bottom_right_diagonal) {
  mask_info mask = need(mask_info::all_visible(3, 4, 6));
  const std::vector<std::int64_t> q{4, 2, 0}, kv{6, 3, 5};
  ASSERT_TRUE(mask.apply_lengths(masks::per_batch(q), masks::per_batch(kv)));
  ASSERT_TRUE(mask.apply_causal());
  oracle truth(3, 1, 4, 6);
  truth.keep([&](auto b, auto, auto i, auto j) {
    const auto n = std::size_t(b);
    return i < q[n] && j < kv[n] && j <= i + kv[n] - q[n];
  });
  expect_says(mask, truth);
  expect_tiles(mask, truth, 2, 2);
  EXPECT_TRUE(lowered_without_tensor(mask));
  EXPECT_EQ(mask.q_valid(), (std::vector<std::uint8_t>{1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(mask.kv_valid(),
            (std::vector<std::uint8_t>{1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 0}));
}

TEST(mask_info, kv_lengths_cut_the_rows_that_end_there) {
  const std::vector<std::int64_t> lengths{7, 4, 1, 0};
  for (const std::int64_t q_len : {1, 2, 3}) {
    for (const std::optional<std::int64_t> window :
         {std::optional<std::int64_t>(), std::optional<std::int64_t>(2),
          std::optional<std::int64_t>(50)}) {
      mask_info mask = need(mask_info::all_visible(4, 7, 7));
      ASSERT_TRUE(mask.apply_causal());
      ASSERT_TRUE(mask.apply_kv_lengths(lengths, q_len, window));
      oracle whole(4, 1, 7, 7);
      whole.keep(
          [&](auto b, auto, auto i, auto j) { return j <= i && j < lengths[std::size_t(b)]; });
      const std::int64_t keys = window ? std::min<std::int64_t>(*window, 7) : 7;
      std::vector<std::int64_t> q_begin, kv_begin;
      for (const std::int64_t length : lengths) {
        q_begin.push_back(length - q_len);
        kv_begin.push_back(window ? std::max<std::int64_t>(length - keys, 0) : 0);
      }
      const oracle truth = whole.part(q_begin, q_len, kv_begin, keys);
      expect_says(mask, truth);
      expect_tiles(mask, truth, 1, 2);
    }
  }
  mask_info decode = need(mask_info::all_visible(4, 7, 7));
  ASSERT_TRUE(decode.apply_causal());
  const std::vector<std::int64_t> used{7, 4, 1, 3};
  ASSERT_TRUE(decode.apply_kv_lengths(used, 1));
  EXPECT_TRUE(lowered_without_tensor(decode));
}

TEST(mask_info, kv_lengths_cut_segments_and_positions_too) {
  const ids packing{0, 0, 1, 1, 1, 2, 0, 0, 0, 0, 0, -1};
  mask_info mask = need(mask_info::from_segments(ids_view(packing, 2)));
  const std::vector<std::int64_t> lengths{6, 2};
  ASSERT_TRUE(mask.apply_kv_lengths(lengths, 3));
  EXPECT_EQ(mask.segment_ids().q, (ids{1, 1, 2, -1, 0, 0}));
  EXPECT_EQ(mask.segment_ids().kv, packing);
  oracle truth(2, 1, 3, 6);
  truth.keep([&](auto b, auto, auto i, auto j) {
    const auto own = mask.segment_ids().q[std::size_t(b * 3 + i)];
    return j < lengths[std::size_t(b)] && own >= 0 && own == packing[std::size_t(b * 6 + j)];
  });
  expect_says(mask, truth);
}

TEST(mask_info, decode_row_and_last_keys) {
  const ids packing{0, 0, 0, 1, 1, 1, 1, 1};
  for (const std::int64_t index : {0, 3, 7}) {
    mask_info mask = need(mask_info::from_segments(ids_view(packing, 1)));
    ASSERT_TRUE(mask.keep_decode_row(index, 2, 1));
    const std::int64_t begin = std::clamp<std::int64_t>(index - 2, 0, 4);
    oracle whole(1, 1, 8, 8);
    whole.keep([&](auto, auto, auto i, auto j) {
      return j >= i - 2 && j <= i + 1 && packing[std::size_t(i)] == packing[std::size_t(j)];
    });
    expect_says(mask, whole.part({index}, 1, {begin}, 4));
    EXPECT_EQ(mask.segment_ids().kv.size(), 4u);
  }
  mask_info mask = need(mask_info::all_visible(1, 8, 8));
  ASSERT_TRUE(mask.apply_causal());
  ASSERT_TRUE(mask.keep_last_keys(3));
  expect_says(mask, oracle(1, 1, 8, 3).keep([](auto, auto, auto i, auto j) { return j + 5 <= i; }));
}

TEST(mask_info, masks_join_by_and_and_or) {
  const mask_info drawn = need(mask_info::from_random(2, 5, 6, 0.5, 3));
  const mask_info other = need(mask_info::from_random(2, 5, 6, 0.5, 4));
  mask_info both = drawn, either = drawn;
  ASSERT_TRUE(both.apply(other));
  ASSERT_TRUE(either.unite(other));
  ASSERT_TRUE(either.apply(either));
  oracle all(2, 1, 5, 6), some(2, 1, 5, 6);
  const oracle::rule a = [&](auto b, auto, auto i, auto j) { return drawn.visible(b, 0, i, j); };
  const oracle::rule o = [&](auto b, auto, auto i, auto j) { return other.visible(b, 0, i, j); };
  expect_says(both, all.keep(a).keep(o));
  expect_says(either, some.keep(a).add(o));
  expect_tiles(either, some, 2, 2);
}

TEST(mask_info, one_entry_serves_any_number) {
  const ids packing{0, 0, 1};
  mask_info mask = need(mask_info::from_segments(ids_view(packing, 1)));
  ASSERT_TRUE(mask.apply_causal());
  ASSERT_TRUE(mask.apply_lengths(std::nullopt, masks::per_batch(2)));
  flash_attention_args args = call_of(mask, 3);
  flash_attention_options options;
  const auto kept = mask.apply_to(args, options);
  ASSERT_TRUE(kept) << kept.message();
  EXPECT_EQ(args.seqlens_k.extent[0], 3);
  EXPECT_EQ(args.q_segment_ids.extent[0], 3);
  for (std::int64_t b = 0; b < 3; ++b) {
    for (std::int64_t i = 0; i < 3; ++i) {
      for (std::int64_t j = 0; j < 3; ++j) {
        EXPECT_EQ(op_sees(args, options, b, 0, i, j), mask.visible(0, 0, i, j));
      }
    }
  }
}

TEST(mask_info, extents_of_zero) {
  for (const auto& [b, q, kv] : {std::array{0, 3, 3}, {2, 0, 3}, {2, 3, 0}, {0, 0, 0}}) {
    mask_info mask = need(mask_info::all_visible(b, q, kv));
    ASSERT_TRUE(mask.apply_causal());
    ASSERT_TRUE(mask.apply_sliding_window(1, 1));
    ASSERT_TRUE(mask.apply_chunked(2));
    ASSERT_TRUE(mask.apply_causal_positions());
    expect_says(mask, oracle(b, 1, q, kv));
    EXPECT_TRUE(mask.exact_segment_ids());
    EXPECT_EQ(mask.q_position_ids().size(), std::size_t(b * q));
  }
}

}  // namespace
}  // namespace tessera::test
