// The vector layer lane by lane: partial loads and stores, conversions, reductions, transposes.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "native.hpp"

namespace {

using tessera::bf16;
using tessera::f16;
using tessera::test::lanes;
using tessera::test::lanes_of;
using tessera::test::reg_of;
using tessera::test::vec;

constexpr int width = vec::width;

lanes counting(float first) {
  lanes values{};
  for (std::size_t n = 0; n < values.size(); ++n) values[n] = first + static_cast<float>(n);
  return values;
}

TEST(simd, arithmetic_is_lane_by_lane) {
  const lanes a = counting(1.0f), b = counting(-3.5f), c = counting(100.0f);
  const lanes sum = lanes_of(vec::add(reg_of(a), reg_of(b)));
  const lanes difference = lanes_of(vec::sub(reg_of(a), reg_of(b)));
  const lanes product = lanes_of(vec::mul(reg_of(a), reg_of(b)));
  const lanes quotient = lanes_of(vec::div(reg_of(c), reg_of(a)));
  const lanes fused = lanes_of(vec::fma(reg_of(a), reg_of(b), reg_of(c)));
  const lanes most = lanes_of(vec::max(reg_of(a), reg_of(b)));
  const lanes chosen = lanes_of(vec::select_below(reg_of(b), vec::zero(), reg_of(a), reg_of(c)));
  for (std::size_t n = 0; n < a.size(); ++n) {
    EXPECT_EQ(sum[n], a[n] + b[n]);
    EXPECT_EQ(difference[n], a[n] - b[n]);
    EXPECT_EQ(product[n], a[n] * b[n]);
    EXPECT_EQ(quotient[n], c[n] / a[n]);
    EXPECT_EQ(fused[n], a[n] * b[n] + c[n]);
    EXPECT_EQ(most[n], std::max(a[n], b[n]));
    EXPECT_EQ(chosen[n], b[n] < 0.0f ? a[n] : c[n]);
  }
}

TEST(simd, max_keeps_a_nan_of_its_second_operand) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(vec::first(vec::max(vec::broadcast(1.0f), vec::broadcast(nan)))));
}

TEST(simd, partial_loads_and_stores_touch_the_first_lanes_only) {
  for (int count = 1; count < width; ++count) {
    std::vector<float> source(static_cast<std::size_t>(count));
    for (std::size_t n = 0; n < source.size(); ++n) source[n] = 1.0f + static_cast<float>(n);
    const lanes loaded = lanes_of(vec::load_n(source.data(), count));
    std::vector<float> target(static_cast<std::size_t>(width), -7.0f);
    vec::store_n(target.data(), reg_of(counting(1.0f)), count);
    for (int n = 0; n < width; ++n) {
      const auto at = static_cast<std::size_t>(n);
      EXPECT_EQ(loaded[at], n < count ? source[at] : 0.0f) << count;
      EXPECT_EQ(target[at], n < count ? 1.0f + static_cast<float>(n) : -7.0f) << count;
    }
  }
}

template <class Element>
void expect_every_pattern_widens() {
  std::vector<Element> all(0x10000);
  for (std::size_t bits = 0; bits < all.size(); ++bits) {
    all[bits].bits = static_cast<std::uint16_t>(bits);
  }
  for (std::size_t first = 0; first < all.size(); first += width) {
    const lanes wide = lanes_of(vec::load_as(all.data() + first));
    for (std::size_t n = 0; n < wide.size(); ++n) {
      const auto want = static_cast<float>(all[first + n]);
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(wide[n])) << first + n;
      } else {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[n]), std::bit_cast<std::uint32_t>(want))
            << first + n;
      }
    }
  }
}

template <class Element>
void expect_same_rounding_as_scalar() {
  std::array<Element, width> narrow{};
  for (std::uint64_t word = 0; word + 3137 * width < (std::uint64_t{1} << 32);
       word += 3137 * width) {
    lanes wide{};
    for (std::size_t n = 0; n < wide.size(); ++n) {
      wide[n] = std::bit_cast<float>(static_cast<std::uint32_t>(word + n * 3137));
    }
    vec::store_as(narrow.data(), reg_of(wide));
    for (std::size_t n = 0; n < wide.size(); ++n) {
      if (std::isnan(wide[n])) {
        ASSERT_TRUE(std::isnan(static_cast<float>(narrow[n]))) << word;
      } else {
        ASSERT_EQ(narrow[n].bits, Element(wide[n]).bits) << std::hexfloat << wide[n];
      }
    }
  }
}

template <class Element>
void expect_partial_conversions_stay_in_bounds() {
  for (int count = 1; count < width; ++count) {
    std::vector<Element> source(static_cast<std::size_t>(count));
    for (std::size_t n = 0; n < source.size(); ++n)
      source[n] = Element(1.5f + static_cast<float>(n));
    const lanes loaded = lanes_of(vec::load_as_n(source.data(), count));
    std::vector<Element> target(static_cast<std::size_t>(width), Element(-7.0f));
    vec::store_as_n(target.data(), reg_of(counting(1.0f)), count);
    for (int n = 0; n < width; ++n) {
      const auto at = static_cast<std::size_t>(n);
      EXPECT_EQ(loaded[at], n < count ? 1.5f + static_cast<float>(n) : 0.0f) << count;
      EXPECT_EQ(static_cast<float>(target[at]), n < count ? 1.0f + static_cast<float>(n) : -7.0f);
    }
  }
}

TEST(simd, every_f16_widens_exactly) {
  expect_every_pattern_widens<f16>();
}
TEST(simd, every_bf16_widens_exactly) {
  expect_every_pattern_widens<bf16>();
}
TEST(simd, f16_rounds_as_the_scalar_type) {
  expect_same_rounding_as_scalar<f16>();
}
TEST(simd, bf16_rounds_as_the_scalar_type) {
  expect_same_rounding_as_scalar<bf16>();
}
TEST(simd, partial_conversions_stay_in_bounds) {
  expect_partial_conversions_stay_in_bounds<float>();
  expect_partial_conversions_stay_in_bounds<f16>();
  expect_partial_conversions_stay_in_bounds<bf16>();
}

TEST(simd, reductions_see_every_lane) {
  for (std::size_t n = 0; n < static_cast<std::size_t>(width); ++n) {
    lanes values{};
    values[n] = 5.0f;
    EXPECT_EQ(vec::sum(reg_of(values)), 5.0f);
    EXPECT_EQ(vec::maximum(reg_of(values)), 5.0f);
    EXPECT_EQ(vec::first(reg_of(values)), n == 0 ? 5.0f : 0.0f);
  }
  EXPECT_EQ(vec::maximum(vec::broadcast(-2.0f)), -2.0f);
}

TEST(simd, sums_maxima_and_transpose_agree_with_their_definition) {
  vec::reg rows[width];
  for (int i = 0; i < width; ++i) {
    lanes row{};
    for (int j = 0; j < width; ++j) {
      row[static_cast<std::size_t>(j)] = static_cast<float>(100 * i + (j + i) % width);
    }
    rows[i] = reg_of(row);
  }
  const lanes sums = lanes_of(vec::sums(rows));
  const lanes maxima = lanes_of(vec::maxima(rows));
  vec::transpose(rows);
  for (int i = 0; i < width; ++i) {
    const lanes column = lanes_of(rows[i]);
    EXPECT_EQ(sums[static_cast<std::size_t>(i)],
              static_cast<float>(width * 100 * i + width * (width - 1) / 2));
    EXPECT_EQ(maxima[static_cast<std::size_t>(i)], static_cast<float>(100 * i + width - 1));
    for (int j = 0; j < width; ++j) {
      EXPECT_EQ(column[static_cast<std::size_t>(j)], static_cast<float>(100 * j + (i + j) % width));
    }
  }
}

}  // namespace
