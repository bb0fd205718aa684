// Latents in pages on tiles: rows that fill no tile, keys that fill no group of sixteen, latents
// that are read where they lie and such that are not.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/latent_attention.hpp>

#include "tests/support/random.hpp"

namespace {

using namespace tessera;
using tessera::support::random_source;
constexpr std::string_view row = "latent_attention.cpu_amx_bf16.absorbed.forward.bf16";

struct sizes {
  std::int64_t heads = 16, keys = 100, latent = 64, rope = 32, page = 16;
  std::int64_t sequences = 1;  ///< of the same latents, each of 700 keys less than the one before
};

/// A token of each sequence over latents whose pages lie in any order; slots behind the last key
/// are NaN.
struct decode_call {
  explicit decode_call(const sizes& of)
      : size(of),
        width(of.latent + of.rope),
        pages((of.keys + of.page - 1) / of.page),
        q(bells(of.sequences * of.heads * width, 1)),
        cache(bells(pages * of.page * width, 2)),
        out(static_cast<std::size_t>(of.sequences * of.heads * of.latent), bf16(9.0f)),
        table(static_cast<std::size_t>(pages)) {
    random_source random(3);
    std::iota(table.begin(), table.end(), 0);
    tessera::support::shuffle(table, random);
    for (std::int64_t j = of.keys; j < pages * of.page; ++j) {
      std::fill_n(latent_of(j), width, bf16(std::numeric_limits<float>::quiet_NaN()));
    }
  }
  static std::vector<bf16> bells(std::int64_t count, std::uint64_t seed) {
    random_source random(seed);
    std::vector<bf16> numbers(static_cast<std::size_t>(count));
    for (bf16& number : numbers) number = bf16(random.bell());
    return numbers;
  }
  bf16* latent_of(std::int64_t j) {
    const std::int64_t page = table[static_cast<std::size_t>(j / size.page)];
    return cache.data() + (page * size.page + j % size.page) * width;
  }

  void run(int threads = 0) {
    std::vector<std::int32_t> seen, tables;
    for (std::int64_t n = 0; n < size.sequences; ++n) {
      seen.push_back(static_cast<std::int32_t>(size.keys - 700 * n));
      tables.insert(tables.end(), table.begin(), table.end());
    }
    const status done = flash_mla_decode(
        {.q = view(q.data(), {size.sequences, 1, size.heads, width}),
         .kv_cache = view(cache.data(), {pages, size.page, 1, width}),
         .block_table = view(tables.data(), {size.sequences, pages}),
         .seqlens_k = view(seen.data(), {size.sequences}),
         .out = view(out.data(), {size.sequences, 1, size.heads, size.latent})},
        {.softmax_scale = 0.1, .v_dim = size.latent}, {.row = row, .threads = threads});
    ASSERT_TRUE(done) << done.message();
  }

  /// The row of a head, in double.
  std::vector<double> expected(std::int64_t head) {
    std::vector<double> logits, sums(static_cast<std::size_t>(size.latent));
    for (std::int64_t j = 0; j < size.keys; ++j) {
      double dot = 0;
      for (std::int64_t c = 0; c < width; ++c) {
        dot +=
            static_cast<double>(static_cast<float>(latent_of(j)[c])) *
            static_cast<double>(static_cast<float>(q[static_cast<std::size_t>(head * width + c)]));
      }
      logits.push_back(0.1 * dot);
    }
    const double most = *std::max_element(logits.begin(), logits.end());
    double total = 0;
    for (std::int64_t j = 0; j < size.keys; ++j) {
      const double weight = std::exp(logits[static_cast<std::size_t>(j)] - most);
      total += weight;
      for (std::size_t d = 0; d < sums.size(); ++d) {
        sums[d] += weight * static_cast<double>(static_cast<float>(latent_of(j)[d]));
      }
    }
    for (double& sum : sums) sum /= total;
    return sums;
  }
  void expect_right() {
    run();
    for (std::int64_t head = 0; head < size.heads; ++head) {
      const std::vector<double> sums = expected(head);
      for (std::int64_t d = 0; d < size.latent; ++d) {
        const auto got = static_cast<double>(
            static_cast<float>(out[static_cast<std::size_t>(head * size.latent + d)]));
        ASSERT_NEAR(got, sums[static_cast<std::size_t>(d)], 0.02) << "head " << head << ", " << d;
      }
    }
  }

  sizes size;
  std::int64_t width, pages;
  std::vector<bf16> q, cache, out;
  std::vector<std::int32_t> table;
};

TEST(tiles, latents_are_attended_to_whatever_fills_no_tile) {
  for (const std::int64_t page : {8, 16, 48, 64, 24}) {
    for (const std::int64_t keys : {1, 15, 16, 17, 63, 64, 65, 100, 2049}) {
      for (const std::int64_t heads : {1, 5, 16, 17}) {
        SCOPED_TRACE(std::to_string(heads) + " heads, " + std::to_string(keys) +
                     " keys, pages of " + std::to_string(page));
        decode_call({.heads = heads, .keys = keys, .page = page}).expect_right();
      }
    }
  }
}

TEST(tiles, latents_have_columns_that_fill_no_tile) {
  for (const std::int64_t latent : {32, 40, 96, 512}) {
    for (const std::int64_t rope : {0, 8, 64}) {
      SCOPED_TRACE(std::to_string(latent) + " and " + std::to_string(rope) + " columns");
      decode_call({.heads = 6, .keys = 150, .latent = latent, .rope = rope}).expect_right();
    }
  }
}

/// A latent with an element that is no number makes none of all rows, which see it; what is behind
/// the last key reaches nobody.
TEST(tiles, latents_that_are_no_numbers_reach_those_who_see_them) {
  for (const std::int64_t key : {0, 40, 98, 99}) {
    for (const std::int64_t keys : {99, 128}) {
      if (key >= keys) continue;
      decode_call call({.keys = keys});
      call.latent_of(key)[33] = bf16(std::numeric_limits<float>::quiet_NaN());
      call.run();
      EXPECT_TRUE(std::all_of(call.out.begin(), call.out.end(), [](bf16 x) {
        return std::isnan(static_cast<float>(x));
      })) << key;
    }
  }
}

/// A query with an element that is no number, or infinite, makes no numbers of its own row alone.
class tiles_of_head : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(, tiles_of_head, testing::Values(0, 3, 15));

TEST_P(tiles_of_head, queries_that_are_no_numbers_stay_in_their_row) {
  const std::int64_t head = GetParam();
  for (const float element :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e38f}) {
    for (const std::int64_t keys : {64, 99, 128, 640}) {
      SCOPED_TRACE(std::to_string(element) + ", " + std::to_string(keys) + " keys");
      decode_call call({.keys = keys});
      bf16& changed = call.q[static_cast<std::size_t>(head * call.width + 7)];
      const bf16 before = changed;
      changed = bf16(element);
      call.run();
      const std::vector<bf16> out = call.out;
      changed = before;
      call.run();
      for (std::size_t at = 0; at < out.size(); ++at) {
        if (static_cast<std::int64_t>(at) / call.size.latent == head) continue;
        ASSERT_EQ(out[at].bits, call.out[at].bits) << at;
      }
      if (std::isfinite(element)) continue;
      for (std::int64_t d = 0; d < call.size.latent; ++d) {
        const bf16 found = out[static_cast<std::size_t>(head * call.size.latent + d)];
        ASSERT_TRUE(std::isnan(static_cast<float>(found))) << d;
      }
    }
  }
}

TEST(tiles, threads_share_latents_and_change_no_bit) {
  // One sequence leaves threads idle; six have several blocks for each.
  for (const std::int64_t sequences : {1, 6}) {
    decode_call call({.keys = 6000, .page = 64, .sequences = sequences});
    call.run(1);
    const std::vector<bf16> out = call.out;
    for (const int threads : {2, 3, 16}) {
      call.run(threads);
      for (std::size_t at = 0; at < out.size(); ++at) {
        ASSERT_EQ(out[at].bits, call.out[at].bits) << at << ", " << threads << " threads";
      }
    }
  }
}

}  // namespace
