// Every constructor and combination rule of mask_info against its definition.
#include <cstdint>
#include <optional>
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
