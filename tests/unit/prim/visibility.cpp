// The interval of keys a row sees, exhaustively over small sizes, against the definition.
#include "../../reference/visibility.hpp"

#include <cstdint>
#include <optional>

#include <gtest/gtest.h>

#include <tessera/prim/common/visibility.hpp>

namespace {

using tessera::mask_mode;
using tessera::prim::key_interval;
using tessera::prim::row_visibility;

constexpr int largest = 6;

struct probe {
  std::int64_t q_len, k_len;
  tessera::flash_attention_options options;
};

template <class Check>
void for_each_probe(Check check) {
  std::vector<std::optional<std::int64_t>> windows{std::nullopt,
                                                   std::numeric_limits<std::int64_t>::max()};
  for (std::int64_t size = 0; size <= largest + 2; ++size) windows.emplace_back(size);
  for (std::int64_t q_len = 1; q_len <= largest; ++q_len) {
    for (std::int64_t k_len = 0; k_len <= largest; ++k_len) {
      for (const auto& left : windows) {
        for (const auto& right : windows) {
          for (const bool causal : {false, true}) {
            for (const auto align :
                 {tessera::alignment::bottom_right, tessera::alignment::top_left}) {
              probe one{q_len, k_len, {}};
              one.options.causal = causal;
              one.options.causal_alignment = align;
              one.options.window_left = left;
              one.options.window_right = right;
              check(one);
            }
          }
        }
      }
    }
  }
}

tessera::attention_kernel_args kernel_args(const probe& one) {
  tessera::attention_kernel_args args;
  args.batch = 1;
  args.q_len = one.q_len;
  args.kv_len = one.k_len;
  args.causal = one.options.causal;
  args.top_left = one.options.causal_alignment == tessera::alignment::top_left;
  args.window_left = one.options.window_left.value_or(tessera::unbounded);
  args.window_right = one.options.window_right.value_or(tessera::unbounded);
  return args;
}

bool truth(const probe& one, std::int64_t row, std::int64_t key) {
  return tessera::reference::in_interval({0, one.q_len, 0, one.k_len}, one.options, row, key);
}

template <mask_mode Mode>
void expect_intervals_agree(const probe& one) {
  const auto args = kernel_args(one);
  const auto rows = row_visibility<Mode>::of(args, tessera::prim::sequence_of(args, 0));
  for (std::int64_t row = 0; row < one.q_len; ++row) {
    const key_interval keys = rows.keys_of(row);
    for (std::int64_t key = -1; key <= one.k_len; ++key) {
      const bool inside = key >= keys.begin && key < keys.end;
      ASSERT_EQ(inside, key >= 0 && truth(one, row, key))
          << "row " << row << " of " << one.q_len << ", key " << key << " of " << one.k_len;
    }
  }
}

TEST(row_visibility, window_mode_expresses_every_option) {
  for_each_probe([](const probe& one) { expect_intervals_agree<mask_mode::window>(one); });
}

TEST(row_visibility, causal_and_full_modes_express_theirs) {
  for_each_probe([](const probe& one) {
    if (one.options.window_left || one.options.window_right) return;
    expect_intervals_agree<mask_mode::causal>(one);
    if (!one.options.causal) expect_intervals_agree<mask_mode::full>(one);
  });
}

TEST(row_visibility, the_ends_of_a_block_of_rows_cover_it_and_stay_inside) {
  for_each_probe([](const probe& one) {
    const auto args = kernel_args(one);
    const auto rows =
        row_visibility<mask_mode::window>::of(args, tessera::prim::sequence_of(args, 0));
    for (std::int64_t first = 0; first < one.q_len; ++first) {
      for (std::int64_t last = first; last < one.q_len; ++last) {
        const key_interval block{rows.keys_of(first).begin, rows.keys_of(last).end};
        ASSERT_GE(block.begin, 0);
        if (!block.empty()) {
          ASSERT_LE(block.end, one.k_len);
        }
        for (std::int64_t row = first; row <= last; ++row) {
          for (std::int64_t key = 0; key < one.k_len; ++key) {
            if (truth(one, row, key)) {
              ASSERT_TRUE(key >= block.begin && key < block.end);
            }
          }
        }
      }
    }
  });
}

TEST(key_interval, intersection_agrees_with_membership) {
  for (std::int64_t a = 0; a < 5; ++a) {
    for (std::int64_t b = 0; b < 5; ++b) {
      for (std::int64_t c = 0; c < 5; ++c) {
        for (std::int64_t d = 0; d < 5; ++d) {
          const key_interval x{a, b}, y{c, d};
          const key_interval both = intersection(x, y);
          for (std::int64_t key = 0; key < 5; ++key) {
            const bool in_x = key >= a && key < b, in_y = key >= c && key < d;
            EXPECT_EQ(key >= both.begin && key < both.end, in_x && in_y);
          }
        }
      }
    }
  }
}

TEST(sequence_of, reads_lengths_and_starts) {
  const std::int32_t starts_q[] = {0, 3, 3, 7}, starts_k[] = {0, 5, 9, 9};
  tessera::attention_kernel_args packed;
  packed.cu_seqlens_q = starts_q;
  packed.cu_seqlens_k = starts_k;
  const auto second = tessera::prim::sequence_of(packed, 1);
  EXPECT_EQ(second.q_begin, 3);
  EXPECT_EQ(second.q_len, 0);
  EXPECT_EQ(second.k_begin, 5);
  EXPECT_EQ(second.k_len, 4);
  const std::int32_t lengths[] = {4, 2};
  tessera::attention_kernel_args dense;
  dense.q_len = 8;
  dense.kv_len = 9;
  EXPECT_EQ(tessera::prim::sequence_of(dense, 1).k_len, 9);
  dense.seqlens_k = lengths;
  EXPECT_EQ(tessera::prim::sequence_of(dense, 1).k_len, 2);
  EXPECT_EQ(tessera::prim::sequence_of(dense, 1).q_len, 8);
  EXPECT_EQ(tessera::prim::sequence_of(dense, 1).q_begin, 0);
}

}  // namespace
