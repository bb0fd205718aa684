// The interval of keys a row sees, exhaustively over small sizes, against the definition.
#include "../../reference/visibility.hpp"

#include <cstdint>
#include <optional>

#include <gtest/gtest.h>

#include <tessera/prim/common/visibility.hpp>

namespace {

using tessera::mask_mode;
using tessera::prim::key_interval;
using tessera::prim::mask_interval;
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
              probe p{q_len, k_len, {}};
              p.options.causal = causal;
              p.options.causal_alignment = align;
              p.options.window_left = left;
              p.options.window_right = right;
              check(p);
            }
          }
        }
      }
    }
  }
}

mask_interval mask_of(const probe& p) {
  constexpr std::int64_t unbounded = std::numeric_limits<std::int64_t>::max();
  const bool top_left = p.options.causal_alignment == tessera::alignment::top_left;
  return {p.options.causal, p.options.window_left.value_or(unbounded),
          p.options.window_right.value_or(unbounded), top_left ? 0 : p.k_len - p.q_len};
}

bool truth(const probe& p, std::int64_t row, std::int64_t key) {
  return tessera::reference::in_interval({0, p.q_len, 0, p.k_len}, p.options, row, key);
}

template <mask_mode Mode>
void expect_intervals_agree(const probe& p) {
  const row_visibility<Mode> rows{p.k_len, mask_of(p)};
  for (std::int64_t row = 0; row < p.q_len; ++row) {
    const key_interval keys = rows.keys_of(row);
    for (std::int64_t key = -1; key <= p.k_len; ++key) {
      const bool inside = key >= keys.begin && key < keys.end;
      ASSERT_EQ(inside, key >= 0 && truth(p, row, key))
          << "row " << row << " of " << p.q_len << ", key " << key << " of " << p.k_len;
    }
  }
}

TEST(row_visibility, window_mode_expresses_every_option) {
  for_each_probe([](const probe& p) { expect_intervals_agree<mask_mode::window>(p); });
}

TEST(row_visibility, causal_and_full_modes_express_theirs) {
  for_each_probe([](const probe& p) {
    if (p.options.window_left || p.options.window_right) return;
    expect_intervals_agree<mask_mode::causal>(p);
    if (!p.options.causal) expect_intervals_agree<mask_mode::full>(p);
  });
}

TEST(mask_interval, knows_which_rows_see_some_and_all_of_neighbouring_keys) {
  using tessera::prim::row_interval;
  const auto inside = [](row_interval rows, std::int64_t row) {
    return row >= rows.begin && row < rows.end;
  };
  for_each_probe([&](const probe& p) {
    const mask_interval mask = mask_of(p);
    for (std::int64_t begin = 0; begin < p.k_len; ++begin) {
      for (std::int64_t end = begin + 1; end <= p.k_len; ++end) {
        const row_interval some = mask.rows_that_see({begin, end});
        const row_interval all = mask.rows_that_see_all({begin, end});
        for (std::int64_t row = 0; row < p.q_len; ++row) {
          std::int64_t seen = 0;
          for (std::int64_t key = begin; key < end; ++key) seen += truth(p, row, key) ? 1 : 0;
          ASSERT_EQ(inside(some, row), seen > 0) << "row " << row << ", from key " << begin;
          ASSERT_EQ(inside(all, row), seen == end - begin) << "row " << row << ", key " << begin;
        }
      }
    }
  });
}

TEST(row_visibility, a_block_of_rows_is_known_from_its_ends) {
  for_each_probe([](const probe& p) {
    const row_visibility<mask_mode::window> rows{p.k_len, mask_of(p)};
    for (std::int64_t first = 0; first < p.q_len; ++first) {
      for (std::int64_t last = first; last < p.q_len; ++last) {
        const auto [block, of_all] = rows.keys_of(first, last);
        ASSERT_GE(block.begin, 0);
        if (!block.empty()) {
          ASSERT_LE(block.end, p.k_len);
        }
        for (std::int64_t row = first; row <= last; ++row) {
          for (std::int64_t key = 0; key < p.k_len; ++key) {
            if (truth(p, row, key)) {
              ASSERT_TRUE(key >= block.begin && key < block.end);
            } else {
              ASSERT_FALSE(key >= of_all.begin && key < of_all.end);
            }
          }
        }
      }
    }
  });
}

TEST(mask_interval, the_mean_number_of_keys_is_that_of_the_rows) {
  for_each_probe([](const probe& p) {
    const mask_interval mask = mask_of(p);
    std::int64_t sum = 0;
    for (std::int64_t row = 0; row < p.q_len; ++row) {
      const key_interval keys = mask.keys_of(row, p.k_len);
      sum += keys.end - keys.begin;
    }
    ASSERT_DOUBLE_EQ(mask.mean_keys(p.q_len, p.k_len),
                     static_cast<double>(sum) / static_cast<double>(p.q_len));
  });
  EXPECT_EQ(mask_interval{}.mean_keys(0, 8), 0.0);
  EXPECT_EQ(mask_interval{}.mean_keys(8, 0), 0.0);
}

TEST(tile_visibility, two_masks_leave_what_both_leave) {
  using tessera::prim::tile_visibility;
  EXPECT_EQ(both(tile_visibility::skip, tile_visibility::full), tile_visibility::skip);
  EXPECT_EQ(both(tile_visibility::full, tile_visibility::partial), tile_visibility::partial);
  EXPECT_EQ(both(tile_visibility::full, tile_visibility::full), tile_visibility::full);
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

}  // namespace
