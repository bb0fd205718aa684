// What sparse attention is besides a formula: all blocks make it dense, packed sequences have the
// bits of separate ones, equal scores select the first blocks, NaN reaches who sees it and nobody
// else.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/flash_attention.hpp>
#include <tessera/sparse_attention.hpp>

#include "tests/support/random.hpp"

namespace {

using namespace tessera::support;
using tessera::view;

constexpr std::int64_t q_heads = 6, kv_heads = 2, head_dim = 20, v_head_dim = 36;

std::vector<float> bells(std::int64_t count, std::uint64_t seed) {
  random_source random(seed);
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = random.bell();
  return numbers;
}

/// Tokens of one entry, heads behind tokens.
struct tokens {
  explicit tokens(std::int64_t count)
      : length(count),
        q(bells(count * q_heads * head_dim, 1)),
        k(bells(count * kv_heads * head_dim, 2)),
        v(bells(count * kv_heads * v_head_dim, 3)),
        gate(static_cast<std::size_t>(count * q_heads), 0.5f),
        out(static_cast<std::size_t>(count * q_heads * v_head_dim), -1.0f) {}

  /// Tokens [begin, end) as a call of one sequence.
  tessera::native_sparse_attention_args slice(std::int64_t begin, std::int64_t end) {
    const auto rows = [&](std::vector<float>& of, std::int64_t heads, std::int64_t columns) {
      return view(of.data() + begin * heads * columns, {1, end - begin, heads, columns});
    };
    const auto gates = view(gate.data() + begin * q_heads, {1, end - begin, q_heads});
    return {.q = rows(q, q_heads, head_dim),
            .k = rows(k, kv_heads, head_dim),
            .v = rows(v, kv_heads, v_head_dim),
            .g_cmp = gates,
            .g_swa = gates,
            .out = rows(out, q_heads, v_head_dim)};
  }

  std::int64_t length;
  std::vector<float> q, k, v, gate, out;
};

/// Heads in front of tokens: a permutation of strides.
tessera::tensor_view heads_first(tessera::tensor_view of) {
  std::swap(of.extent[1], of.extent[2]);
  std::swap(of.stride[1], of.stride[2]);
  return of;
}

void expect_near(const std::vector<float>& computed, const std::vector<float>& wanted) {
  ASSERT_EQ(computed.size(), wanted.size());
  for (std::size_t at = 0; at < wanted.size(); ++at) {
    ASSERT_NEAR(computed[at], wanted[at], 1e-5) << at;
  }
}

std::vector<float> causal_attention(tokens& of) {
  std::vector<float> out(of.out.size());
  const auto args = of.slice(0, of.length);
  const auto done =
      tessera::flash_attention({.q = args.q,
                                .k = args.k,
                                .v = args.v,
                                .out = view(out.data(), {1, of.length, q_heads, v_head_dim})},
                               {.causal = true});
  EXPECT_TRUE(done) << done.message();
  return out;
}

TEST(sparse_attention, all_blocks_are_causal_attention) {
  tokens some(150);
  const std::vector<float> dense = causal_attention(some);
  auto args = some.slice(0, some.length);
  args.g_cmp = args.g_swa = {};
  ASSERT_TRUE(tessera::native_sparse_attention(args, {.block_size = 16, .block_count = 10}));
  expect_near(some.out, dense);

  std::vector<std::uint8_t> shown(static_cast<std::size_t>(10 * 5), 1);
  ASSERT_TRUE(tessera::blocksparse_attention({.q = heads_first(args.q),
                                              .k = heads_first(args.k),
                                              .v = heads_first(args.v),
                                              .block_mask = view(shown.data(), {1, 1, 10, 5}),
                                              .out = heads_first(args.out)},
                                             {.causal = true, .block_q = 15, .block_k = 32}));
  expect_near(some.out, dense);
}

TEST(sparse_attention, packed_sequences_have_the_bits_of_separate_ones) {
  const std::vector<std::int32_t> offsets{0, 0, 33, 34, 34, 120};
  tokens packed(130), separate(130);
  auto args = packed.slice(0, packed.length);
  args.cu_seqlens = view(offsets.data(), {std::int64_t{6}});
  const tessera::native_sparse_attention_options options{
      .block_size = 8, .block_count = 3, .window_left = 11};
  ASSERT_TRUE(tessera::native_sparse_attention(args, options));
  std::fill(separate.out.begin(), separate.out.end(), 0.0f);
  for (std::size_t n = 0; n + 1 < offsets.size(); ++n) {
    ASSERT_TRUE(
        tessera::native_sparse_attention(separate.slice(offsets[n], offsets[n + 1]), options));
  }
  EXPECT_EQ(packed.out, separate.out);
}

TEST(sparse_attention, of_equal_scores_the_first_blocks_are_selected_and_a_tokens_own) {
  tokens some(64);
  std::fill(some.k.begin(), some.k.end(), 0.25f);
  std::vector<std::int32_t> selected(static_cast<std::size_t>(some.length * kv_heads * 3));
  auto args = some.slice(0, some.length);
  args.selected_blocks = view(selected.data(), {1, some.length, kv_heads, 3});
  ASSERT_TRUE(tessera::native_sparse_attention(args, {.block_size = 8, .block_count = 3}));
  for (std::int64_t token = 0; token < some.length; ++token) {
    const auto own = static_cast<std::int32_t>(token / 8);
    const std::vector<std::int32_t> wanted = own == 0   ? std::vector{0, -1, -1}
                                             : own == 1 ? std::vector{0, 1, -1}
                                                        : std::vector{0, 1, own};
    for (std::int64_t slot = 0; slot < kv_heads * 3; ++slot) {
      EXPECT_EQ(selected[static_cast<std::size_t>(token * kv_heads * 3 + slot)],
                wanted[static_cast<std::size_t>(slot % 3)])
          << token;
    }
  }
}

/// The selection of a call of native_sparse_attention and of block_selection.
using blocks = std::vector<std::int32_t>;
blocks selected_with(tokens& of, const tessera::native_sparse_attention_options& options) {
  blocks selected(static_cast<std::size_t>(of.length * kv_heads * options.block_count), 77);
  auto args = of.slice(0, of.length);
  args.selected_blocks =
      view(selected.data(), {std::int64_t{1}, of.length, kv_heads, options.block_count});
  EXPECT_TRUE(tessera::native_sparse_attention(args, options));
  return selected;
}
blocks selected_by(tokens& of, const tessera::block_selection_options& options, int threads = 0) {
  blocks selected(static_cast<std::size_t>(of.length * kv_heads * options.block_count), 77);
  const auto args = of.slice(0, of.length);
  const tessera::status done = tessera::block_selection(
      {.q = args.q,
       .k = args.k,
       .selected_blocks =
           view(selected.data(), {std::int64_t{1}, of.length, kv_heads, options.block_count})},
      options, {.threads = threads});
  EXPECT_TRUE(done) << done.message();
  return selected;
}

TEST(block_selection, is_what_native_sparse_attention_selects) {
  tokens some(200);
  for (const std::int64_t count : {1, 3, 5, 40}) {
    const blocks selected = selected_by(some, {.block_size = 8, .block_count = count});
    EXPECT_EQ(selected, selected_with(some, {.block_size = 8, .block_count = count}));
    EXPECT_EQ(selected, selected_by(some, {.block_size = 8, .block_count = count}, 3));
  }
}

TEST(block_selection, has_the_first_and_the_last_blocks_whatever_their_weight) {
  constexpr std::int64_t count = 6;
  tokens some(200);
  const blocks by_weight = selected_by(some, {.block_size = 8, .block_count = count - 3});
  const blocks selected = selected_by(
      some, {.block_size = 8, .block_count = count, .first_blocks = 1, .last_blocks = 3});
  for (std::int64_t row = 0; row < some.length * kv_heads; ++row) {
    const auto own = static_cast<std::int32_t>(row / kv_heads / 8);
    const auto begin = selected.begin() + row * count, end = begin + count;
    for (const std::int32_t block : {0, own - 2, own - 1, own}) {
      EXPECT_TRUE(block < 0 || std::find(begin, end, block) != end) << row << ' ' << block;
    }
    EXPECT_TRUE(std::is_sorted(begin, std::find(begin, end, -1))) << row;
    EXPECT_EQ(std::count(begin, end, -1), std::max<std::int64_t>(count - own - 1, 0)) << row;
    // Two places are left, which the blocks with the largest weights have.
    const auto first = by_weight.begin() + row * (count - 3);
    for (auto at = first; at != first + 3; ++at) {
      const bool has = std::find(begin, end, *at) != end;
      EXPECT_TRUE(has || *at == -1) << row;
    }
  }
}

TEST(block_selection, of_fewer_slots_than_are_selected_anyway_has_the_own_and_the_lowest) {
  tokens some(64);
  const blocks selected = selected_by(
      some, {.block_size = 8, .block_count = 3, .first_blocks = 1, .last_blocks = 1000});
  for (std::int64_t row = 0; row < some.length * kv_heads; ++row) {
    const auto own = static_cast<std::int32_t>(row / kv_heads / 8);
    const blocks wanted = own == 0   ? blocks{0, -1, -1}
                          : own == 1 ? blocks{0, 1, -1}
                                     : blocks{0, 1, own};
    EXPECT_EQ(blocks(selected.begin() + row * 3, selected.begin() + row * 3 + 3), wanted) << row;
  }
}

TEST(sparse_attention, what_is_not_finite_reaches_the_rows_that_see_it) {
  constexpr std::int64_t length = 96, bad = 40;
  tokens some(length);
  some.v[static_cast<std::size_t>(bad * kv_heads * v_head_dim + 3)] =
      std::numeric_limits<float>::infinity();
  const auto args = some.slice(0, length);
  ASSERT_TRUE(tessera::blocksparse_attention({.q = heads_first(args.q),
                                              .k = heads_first(args.k),
                                              .v = heads_first(args.v),
                                              .out = heads_first(args.out)},
                                             {.causal = true}));
  for (std::int64_t token = 0; token < length; ++token) {
    for (std::int64_t head = 0; head < q_heads; ++head) {
      for (std::int64_t d = 0; d < v_head_dim; ++d) {
        const bool reached = token >= bad && head < q_heads / kv_heads && d == 3;
        const float number =
            some.out[static_cast<std::size_t>((token * q_heads + head) * v_head_dim + d)];
        ASSERT_EQ(std::isinf(number), reached) << token << ' ' << head << ' ' << d;
        ASSERT_FALSE(std::isnan(number)) << token << ' ' << head << ' ' << d;
      }
    }
  }
}

}  // namespace
