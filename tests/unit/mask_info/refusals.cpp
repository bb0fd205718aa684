// What mask_info refuses, and that a refusal changes nothing.
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/mask_info/oracle.hpp"

namespace tessera::test {
namespace {

class refusals : public testing::Test {
 protected:
  /// The sentence of a rule applied to a 2 x 3 x 4 mask, which must stay as it was.
  template <class Rule>
  std::string of(const Rule& rule) {
    mask_info mask = need(mask_info::all_visible(2, 3, 4));
    const status done = rule(mask);
    EXPECT_EQ(done.code(), status_code::invalid_argument);
    EXPECT_TRUE(mask.terms().empty());
    EXPECT_EQ(mask.q_len(), 3);
    EXPECT_EQ(mask.kv_len(), 4);
    return done.message();
  }

  const std::vector<std::int32_t> values_ = std::vector<std::int32_t>(64, 1);
  const tensor_view rows_ = view(values_.data(), {2, 3});
  const tensor_view keys_ = view(values_.data(), {2, 4});
};

TEST_F(refusals, sizes) {
  EXPECT_EQ(mask_info::all_visible(-1, 2, 3).message(), "batch: is -1, it can be 0 to 2147483647");
  EXPECT_EQ(mask_info::all_visible(1, 2, std::int64_t{1} << 31).message(),
            "kv_len: is 2147483648, it can be 0 to 2147483647");
  EXPECT_EQ(mask_info::from_random(1, 2, 3, 1.5).message(),
            "sparsity: is 1.500000, it can be 0 to 1");
  EXPECT_EQ(mask_info::chunked(0, 1, 2, 3).message(),
            "chunk_size: is 0, it can be 1 to 2147483647");
}

TEST_F(refusals, offsets_and_lengths) {
  EXPECT_EQ(of([](auto& mask) {
              return mask.apply_causal({1, 2, 3});
            }),
            "offset: has 3 numbers, batch is 2");
  EXPECT_EQ(of([](auto& mask) { return mask.apply_causal(std::int64_t{1} << 40); }),
            "offset: is 1099511627776, its magnitude can be 2147483647");
  EXPECT_EQ(of([](auto& mask) { return mask.apply_sliding_window(-1, 0); }),
            "window_left: is -1, it can be 0 to 2147483647");
  EXPECT_EQ(of([](auto& mask) { return mask.apply_sliding_window(0, -2); }),
            "window_right: is -2, it can be 0 to 2147483647");
  EXPECT_EQ(of([](auto& mask) { return mask.apply_chunked(-4); }),
            "chunk_size: is -4, it can be 1 to 2147483647");
  EXPECT_EQ(of([](auto& mask) {
              return mask.apply_chunked(4, {1, 2, 3});
            }),
            "offset: has 3 numbers, batch is 2");
  EXPECT_EQ(of([](auto& mask) {
              return mask.apply_lengths(std::nullopt, masks::per_batch({4, 5}));
            }),
            "seqlens_k: entry 1 is 5, it can be 0 to 4");
  EXPECT_EQ(of([](auto& mask) { return mask.apply_lengths(masks::per_batch(-1), std::nullopt); }),
            "seqlens_q: entry 0 is -1, it can be 0 to 3");
  EXPECT_EQ(of([](auto& mask) { return mask.apply_kv_lengths(2, 4); }),
            "q_len: is 4, the mask has 3 rows");
  EXPECT_EQ(of([](auto& mask) {
              return mask.apply_kv_lengths({1, 4}, 1);
            }),
            "kv_lengths: entry 1 is 4, the mask has 3 rows");
  EXPECT_EQ(of([](auto& mask) { return mask.apply_kv_lengths(1, 1, 0); }),
            "sliding_window: is 0, it can be 1 to 2147483647");
  EXPECT_EQ(of([](auto& mask) { return mask.keep_decode_row(3, 1, 1); }),
            "index: is 3, the mask has 3 rows");
  EXPECT_EQ(of([](auto& mask) { return mask.keep_decode_row(0, -1, 1); }),
            "window_left: is -1, it can be 0 to 2147483647");
  EXPECT_EQ(of([](auto& mask) { return mask.keep_last_keys(5); }),
            "count: is 5, the mask has 4 keys");
}

TEST_F(refusals, tensors) {
  EXPECT_EQ(of([&](auto& mask) { return mask.apply_segments({}); }), "q_segment_ids: is absent");
  EXPECT_EQ(of([&](auto& mask) { return mask.apply_segments(rows_); }),
            "kv_segment_ids: are needed where q_len is 3 and kv_len is 4");
  EXPECT_EQ(of([&](auto& mask) { return mask.apply_segments(keys_, keys_); }),
            "q_segment_ids: shape is [2,4], the mask needs [2,3]");
  EXPECT_EQ(of([&](auto& mask) { return mask.apply_segments(rows_, rows_); }),
            "kv_segment_ids: shape is [2,3], the mask needs [2,4]");
  tensor_view wrong = rows_;
  wrong.type = dtype::i64;
  EXPECT_EQ(of([&](auto& mask) { return mask.apply_token_type_ids(wrong, keys_); }),
            "q_token_types: dtype is i64, expected i32");
  wrong = rows_;
  wrong.data = nullptr;
  EXPECT_EQ(of([&](auto& mask) { return mask.apply_segments(wrong, keys_); }),
            "q_segment_ids: data is null, shape is [2,3]");
  wrong = rows_;
  wrong.device.kind = device_kind::cuda;
  EXPECT_EQ(of([&](auto& mask) { return mask.apply_segments(wrong, keys_); }),
            "q_segment_ids: is not in the CPU's memory, where masks are built");
  wrong = rows_;
  wrong.rank = 77;
  EXPECT_EQ(of([&](auto& mask) { return mask.apply_segments(wrong, keys_); }),
            "q_segment_ids: rank is 77, it can be 0 to 5");
  wrong = rows_;
  wrong.extent[1] = -3;
  EXPECT_EQ(of([&](auto& mask) { return mask.apply_segments(wrong, keys_); }),
            "q_segment_ids: axis 1 is -3, it can be 0 to 2147483647");
  EXPECT_EQ(of([&](auto& mask) { return mask.apply_mask(rows_); }), "mask: rank is 2, expected 4");
  EXPECT_EQ(of([&](auto& mask) {
              return mask.apply_mask(view(values_.data(), {2, 1, 3, 5}));
            }),
            "mask: axis 3 is 5, expected 4 or 1");
  const float number = 1;
  EXPECT_EQ(of([&](auto& mask) {
              return mask.apply_mask(view(&number, {1, 1, 1, 1}));
            }),
            "mask: dtype is f32, masks are u8 or i32");
  EXPECT_EQ(mask_info::from_attention_mask(view(values_.data(), {4})).message(),
            "mask: rank is 1, it can be 2, 3 or 4");
  EXPECT_EQ(mask_info::from_attention_mask(view(values_.data(), {1, 2, 2}), 3).message(),
            "q_len: is 3, the mask has 2 rows");
  EXPECT_EQ(mask_info::from_validity(rows_, view(values_.data(), {1, 4})).message(),
            "kv_valid: batch is 1, q_valid has 2");
}

TEST_F(refusals, other_masks) {
  const mask_info other = need(mask_info::all_visible(2, 3, 5));
  EXPECT_EQ(of([&](auto& mask) { return mask.apply(other); }),
            "mask_info: kv_len is 4, the other mask has 5");
  EXPECT_EQ(of([&](auto& mask) { return mask.unite(other); }),
            "mask_info: kv_len is 4, the other mask has 5");
}

TEST_F(refusals, calls_that_do_not_fit) {
  mask_info mask = need(mask_info::all_visible(2, 3, 4));
  ASSERT_TRUE(mask.apply_causal());
  const auto message = [&](auto change) {
    flash_attention_args args = call_of(mask);
    flash_attention_options options;
    change(args, options);
    const flash_attention_options before = options;
    const auto kept = mask.apply_to(args, options);
    EXPECT_EQ(options, before);
    return kept.message();
  };
  EXPECT_EQ(message([](auto& args, auto&) { args.q.extent[0] = 3; }),
            "q: batch is 3, the mask has 2");
  EXPECT_EQ(message([](auto& args, auto&) { args.q.extent[1] = 4; }),
            "q: length is 4, the mask has 3");
  EXPECT_EQ(message([](auto& args, auto&) { args.k.extent[1] = 9; }),
            "k: length is 9, the mask has 4");
  EXPECT_EQ(message([](auto& args, auto&) { args.q.rank = 3; }), "q: rank is 3, the mask has 4");
  EXPECT_EQ(message([](auto&, auto& options) { options.causal = true; }),
            "causal: is given besides a mask_info, which sets it");
  EXPECT_EQ(message([](auto&, auto& options) { options.window_left = 3; }),
            "window_left: is given besides a mask_info, which sets it");
  EXPECT_EQ(message([](auto&, auto& options) { options.window_right = 3; }),
            "window_right: is given besides a mask_info, which sets it");
  EXPECT_EQ(message([&](auto& args, auto&) { args.mask = rows_; }),
            "mask: is given besides a mask_info, which sets it or cannot");
  EXPECT_EQ(message([&](auto& args, auto&) { args.cu_seqlens_q = rows_; }),
            "cu_seqlens_q: is given besides a mask_info, which sets it or cannot");
  std::vector<std::uint8_t> heads(3, 1);
  ASSERT_TRUE(mask.apply_mask(view(heads.data(), {1, 3, 1, 1})));
  EXPECT_EQ(message([&](auto& args, auto&) { args.q.extent[2] = 4; }),
            "q: number of heads is 4, the mask has 3");
}

}  // namespace
}  // namespace tessera::test
