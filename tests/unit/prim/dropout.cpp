// The dropout generator: published answers, agreement with the definition in tests/reference, and
// the share it keeps.
#include <cmath>
#include <cstdint>

#include <gtest/gtest.h>

#include <tessera/prim/common/dropout.hpp>

#include "../../reference/philox.hpp"
#include "../../support/random.hpp"

namespace {

using tessera::prim::philox4x32;
using tessera::prim::philox_block;

TEST(philox, known_answers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, 0),
            (philox_block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (philox_block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (philox_block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(philox, the_reference_has_the_same_known_answers) {
  using tessera::reference::philox4x32_10;
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, 0, 0),
            (philox_block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (philox_block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(philox, agrees_with_the_reference_on_random_counters) {
  tessera::support::random_source random(1);
  for (int n = 0; n < 10000; ++n) {
    philox_block counter{};
    for (std::uint32_t& word : counter) word = static_cast<std::uint32_t>(random.bits());
    const std::uint64_t seed = random.bits();
    ASSERT_EQ(philox4x32(counter, seed),
              tessera::reference::philox4x32_10(counter, static_cast<std::uint32_t>(seed),
                                                static_cast<std::uint32_t>(seed >> 32)));
  }
}

TEST(dropout, decisions_follow_the_definition_for_positions_beyond_32_bits_of_elements) {
  tessera::support::random_source random(2);
  for (int n = 0; n < 10000; ++n) {
    const double p = random.pick({0.1, 0.5, 0.9, 0x1p-33, 1.0 - 0x1p-31});
    const auto threshold = static_cast<std::uint32_t>(std::ceil(std::ldexp(p, 32)));
    const std::uint64_t seed = random.bits();
    const std::int64_t entry = random.between(0, 1 << 20), row = random.between(0, 1 << 28);
    const std::int64_t key = random.between(0, 1 << 30);
    const auto head = static_cast<int>(random.between(0, 255));
    ASSERT_EQ(tessera::prim::dropout_keeps(seed, threshold, entry, head, row, key),
              tessera::reference::dropout_keeps(p, seed, entry, head, row, key));
  }
}

TEST(dropout, keys_side_by_side_have_the_decisions_of_each) {
  tessera::support::random_source random(3);
  for (int n = 0; n < 300; ++n) {
    const auto threshold = static_cast<std::uint32_t>(random.bits());
    const std::uint64_t seed = random.bits();
    const std::int64_t entry = random.between(0, 1 << 20), row = random.between(0, 1 << 28);
    const std::int64_t key = random.between(0, 1 << 30);
    const auto head = static_cast<int>(random.between(0, 255));
    float kept[tessera::prim::dropout_keys_at_once];
    tessera::prim::dropout_kept(seed, threshold, entry, head, row, key, kept);
    for (int i = 0; i < tessera::prim::dropout_keys_at_once; ++i) {
      ASSERT_EQ(kept[i], tessera::prim::dropout_keeps(seed, threshold, entry, head, row, key + i)
                             ? 1.0f
                             : 0.0f)
          << "first key " << key << ", key " << i;
    }
  }
}

TEST(dropout, four_neighbouring_keys_share_one_block) {
  const auto words = tessera::prim::dropout_words(42, 3, 2, 7, 20);
  for (std::int64_t key = 20; key < 24; ++key) {
    EXPECT_EQ(tessera::prim::dropout_words(42, 3, 2, 7, key), words);
  }
  EXPECT_NE(tessera::prim::dropout_words(42, 3, 2, 7, 24), words);
  EXPECT_NE(tessera::prim::dropout_words(42, 3, 2, 8, 20), words);
  EXPECT_NE(tessera::prim::dropout_words(42, 3, 1, 7, 20), words);
  EXPECT_NE(tessera::prim::dropout_words(42, 2, 2, 7, 20), words);
  EXPECT_NE(tessera::prim::dropout_words(43, 3, 2, 7, 20), words);
}

TEST(dropout, keeps_its_share) {
  for (const double p : {0.1, 0.5, 0.9}) {
    const auto threshold = static_cast<std::uint32_t>(std::ceil(std::ldexp(p, 32)));
    int kept = 0;
    constexpr int rows = 300, keys = 1000;
    for (int row = 0; row < rows; ++row) {
      for (int key = 0; key < keys; ++key) {
        kept += tessera::prim::dropout_keeps(9, threshold, 0, 0, row, key) ? 1 : 0;
      }
    }
    // Six standard deviations of a binomial count.
    const double deviation = std::sqrt(rows * keys * p * (1.0 - p));
    EXPECT_NEAR(kept, rows * keys * (1.0 - p), 6.0 * deviation) << p;
  }
}

}  // namespace
