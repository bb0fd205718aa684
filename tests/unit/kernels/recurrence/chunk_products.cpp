// Products of chunks of tokens with this program's instructions, against their definitions: states
// that are read and left in both directions, what is in front of tokens and behind them alone, and
// weights of pairs whose decays vanish.
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/kernels/recurrence/cpu/state_products.hpp>
#include <tessera/kernels/recurrence/cpu/token_pairs.hpp>

#include "tests/unit/prim/native.hpp"

namespace {

using namespace tessera;
using namespace tessera::kernels::recurrence;
using test::native_isa;

constexpr std::int64_t width = prim::simd<native_isa>::width;
constexpr std::int64_t tokens = chunk_tokens;

std::vector<float> bells(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> bell;
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& x : numbers) x = bell(random);
  return numbers;
}
float at(const std::vector<float>& of, std::int64_t place) {
  return of[static_cast<std::size_t>(place)];
}

/// Rows and columns that fill register tiles, and leave some over.
constexpr std::int64_t row_counts[] = {1, 5, 6, 23};
const std::int64_t column_counts[] = {width, 4 * width, 7 * width};

TEST(chunk_products, read_a_state_and_the_values_of_earlier_tokens) {
  for (const std::int64_t rows : row_counts) {
    for (const std::int64_t columns : column_counts) {
      for (const bool back : {false, true}) {
        SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns));
        const auto readers = bells(tokens * rows, 1), state = bells(rows * columns, 2);
        const auto weights = bells(tokens * tokens, 3), found = bells(tokens * columns, 5);
        auto values = bells(tokens * columns, 4), out = found;
        // Only the last token of the scan may see this.
        const std::int64_t last = back ? 0 : tokens - 1;
        values[static_cast<std::size_t>(last * columns)] = std::numeric_limits<float>::quiet_NaN();
        const std::int64_t first = back ? tokens - 1 : 0, step = back ? -1 : 1;
        read_state<native_isa, true, true>(
            {readers.data() + first * rows, step * rows}, state.data(), {rows, columns},
            {weights.data() + first * (tokens + 1), step * tokens, step},
            {values.data() + first * columns, step * columns},
            {out.data() + first * columns, step * columns});
        for (std::int64_t t = 0; t < tokens; ++t) {
          for (std::int64_t c = 0; c < columns; ++c) {
            double sum = at(found, t * columns + c);
            for (std::int64_t r = 0; r < rows; ++r) {
              sum += double{at(readers, t * rows + r)} * double{at(state, r * columns + c)};
            }
            for (std::int64_t s = 0; s < tokens; ++s) {
              if (back ? s < t : s > t) continue;
              sum += double{at(weights, t * tokens + s)} * double{at(values, s * columns + c)};
            }
            const float got = at(out, t * columns + c);
            ASSERT_EQ(std::isnan(got), std::isnan(sum)) << t << ", " << c;
            if (std::isnan(sum)) continue;
            ASSERT_NEAR(got, sum, 1e-4) << t << ", " << c;
          }
        }
      }
    }
  }
}

template <tile_decay Decay>
void expect_update() {
  for (const std::int64_t rows : row_counts) {
    for (const std::int64_t columns : column_counts) {
      const auto before = bells(rows * columns, 1), keys = bells(rows * tokens, 2);
      const auto values = bells(tokens * columns, 3), decay = bells(rows + columns, 4);
      auto after = before;
      update_state<native_isa, Decay>(after.data(), after.data(), {rows, columns}, decay.data(),
                                      keys.data(), {values.data(), columns});
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) {
          double sum = at(before, r * columns + c);
          if (Decay == tile_decay::rows) sum *= at(decay, r);
          if (Decay == tile_decay::columns) sum *= at(decay, c);
          for (std::int64_t t = 0; t < tokens; ++t) {
            sum += double{at(keys, r * tokens + t)} * double{at(values, t * columns + c)};
          }
          ASSERT_NEAR(at(after, r * columns + c), sum, 1e-4) << r << ", " << c;
        }
      }
    }
  }
}

TEST(chunk_products, leave_what_tokens_bring_in_a_state_that_decays) {
  expect_update<tile_decay::none>();
  expect_update<tile_decay::rows>();
  expect_update<tile_decay::columns>();
}

TEST(chunk_products, multiply_tiles_element_by_element) {
  for (const std::int64_t rows : row_counts) {
    const std::int64_t columns = 3 * width;
    const auto a = bells(rows * columns, 1), b = bells(rows * columns, 2);
    const auto factor = bells(columns, 3);
    std::vector<float> to(static_cast<std::size_t>(columns));
    multiply_tiles<native_isa>(a.data(), b.data(), {rows, columns}, factor.data(), to.data());
    for (std::int64_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (std::int64_t r = 0; r < rows; ++r) {
        sum += double{at(a, r * columns + c)} * double{at(b, r * columns + c)};
      }
      EXPECT_NEAR(at(to, c), sum * at(factor, c), 1e-4);
    }
  }
}

/// Products of the decays of tokens (from, to].
double decayed(const std::vector<float>& decay, std::int64_t padded, std::int64_t channel,
               std::int64_t from, std::int64_t to) {
  double product = 1;
  for (std::int64_t n = from + 1; n <= to; ++n) product *= at(decay, n * padded + channel);
  return product;
}

/// Queries of `Side` of their tokens.
template <state_side Side>
void expect_related_through_decays() {
  const std::int64_t padded = 3 * width;
  const auto q = bells(tokens * padded, 1), k = bells(tokens * padded, 2);
  auto decay = bells(tokens * padded, 3);
  for (std::size_t i = 0; i < decay.size(); ++i) {
    decay[i] = i % 7 == 0 ? 0.0f : i % 5 == 0 ? 1e-30f : 1.0f / (1.0f + std::fabs(decay[i]));
  }
  std::vector<float> found_q(q.size()), left_k(q.size()), left_alone(q.size());
  std::vector<float> whole(static_cast<std::size_t>(padded)), whole_alone(whole.size());
  std::vector<float> weights(static_cast<std::size_t>(tokens * tokens));
  relate_chunk<native_isa, true, Side>(
      {q.data(), k.data(), decay.data(), found_q.data(), left_k.data(), whole.data(), padded},
      weights.data());
  leave_keys<native_isa>({.k = k.data(),
                          .decay = decay.data(),
                          .left_k = left_alone.data(),
                          .passed_decay = whole_alone.data(),
                          .padded = padded});
  EXPECT_EQ(left_k, left_alone);
  EXPECT_EQ(whole, whole_alone);
  for (std::int64_t n = 0; n < tokens; ++n) {
    const std::int64_t passed = Side == state_side::behind ? n : n - 1;
    for (std::int64_t m = 0; m <= n; ++m) {
      double sum = 0;
      for (std::int64_t c = 0; m <= passed && c < padded; ++c) {
        sum += double{at(q, n * padded + c)} * decayed(decay, padded, c, m, passed) *
               double{at(k, m * padded + c)};
      }
      EXPECT_NEAR(at(weights, n * tokens + m), sum, 1e-4) << n << ", " << m;
    }
    for (std::int64_t c = 0; c < padded; ++c) {
      const std::int64_t place = n * padded + c;
      EXPECT_NEAR(at(found_q, place), at(q, place) * decayed(decay, padded, c, -1, passed), 1e-5);
      EXPECT_NEAR(at(left_k, place), at(k, place) * decayed(decay, padded, c, n, tokens - 1), 1e-5);
    }
  }
  for (std::int64_t c = 0; c < padded; ++c) {
    EXPECT_NEAR(at(whole, c), decayed(decay, padded, c, -1, tokens - 1), 1e-6);
  }
}

TEST(chunk_products, relate_tokens_through_decays_that_vanish) {
  expect_related_through_decays<state_side::behind>();
  expect_related_through_decays<state_side::in_front>();
}

TEST(chunk_products, relate_tokens_that_do_not_decay) {
  const std::int64_t padded = 2 * width;
  const auto q = bells(tokens * padded, 1), k = bells(tokens * padded, 2);
  std::vector<float> weights(static_cast<std::size_t>(tokens * tokens));
  relate_chunk<native_isa, false>({.q = q.data(), .k = k.data(), .padded = padded}, weights.data());
  for (std::int64_t n = 0; n < tokens; ++n) {
    for (std::int64_t m = 0; m <= n; ++m) {
      double sum = 0;
      for (std::int64_t c = 0; c < padded; ++c) {
        sum += double{at(q, n * padded + c)} * double{at(k, m * padded + c)};
      }
      EXPECT_NEAR(at(weights, n * tokens + m), sum, 1e-4) << n << ", " << m;
    }
  }
}

}  // namespace
