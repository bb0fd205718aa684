// exp2 and tanh of every instruction set over their whole range, against the double functions.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include <tessera/prim/cpu/activations.hpp>
#include <tessera/prim/cpu/math.hpp>

#include "native.hpp"

namespace {

using tessera::test::lanes;
using tessera::test::lanes_of;
using tessera::test::reg_of;
using tessera::test::vec;

// Distance in units of the last place of the true value.
double ulps(float ours, double truth) {
  const double unit = std::ldexp(1.0, std::max(std::ilogb(truth), -126) - 23);
  return std::fabs(static_cast<double>(ours) - truth) / unit;
}

// Calls check(x, y) for y = function(x) at every `step`-th float pattern.
template <class Function, class Check>
void sweep(std::uint32_t step, Function function, Check check) {
  lanes x{};
  std::size_t filled = 0;
  for (std::uint64_t word = 0; word < (std::uint64_t{1} << 32); word += step) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(word));
    if (std::isnan(value)) continue;
    x[filled++] = value;
    if (filled < x.size()) continue;
    const lanes y = lanes_of(function(reg_of(x)));
    for (std::size_t n = 0; n < x.size(); ++n) check(x[n], y[n]);
    filled = 0;
  }
}

TEST(exp2, is_within_three_ulps_from_minus_126_to_127) {
  double worst = 0.0;
  float where = 0.0f;
  sweep(
      509, [](auto x) { return vec::exp2(x); },
      [&](float x, float y) {
        if (!(x >= -126.0f && x <= 127.0f)) return;
        const double error = ulps(y, std::exp2(static_cast<double>(x)));
        if (error > worst) worst = error, where = x;
      });
  EXPECT_LE(worst, 3.0) << "at " << where;
  RecordProperty("worst_ulps", std::to_string(worst));
}

TEST(exp2, vanishes_below_minus_126) {
  sweep(
      4093, [](auto x) { return vec::exp2(x); },
      [](float x, float y) {
        if (!(x < -126.0f)) return;
        ASSERT_GE(y, 0.0f) << x;
        ASSERT_LE(y, 0x1p-126f) << x;
        if (x < -150.0f) {
          ASSERT_EQ(y, 0.0f) << x;
        }
      });
}

TEST(exp2, minus_infinity_is_exactly_zero_and_nan_stays) {
  EXPECT_EQ(vec::first(vec::exp2(vec::broadcast(-HUGE_VALF))), 0.0f);
  EXPECT_TRUE(
      std::isnan(vec::first(vec::exp2(vec::broadcast(std::numeric_limits<float>::quiet_NaN())))));
}

TEST(exp2, grows_with_its_argument_at_whole_numbers) {
  // Where the polynomial's pieces meet, a step down would let a weight exceed the maximum's.
  for (int whole = -125; whole < 127; ++whole) {
    const auto at = static_cast<float>(whole);
    const float below = std::nextafter(at, -HUGE_VALF);
    const float left = vec::first(vec::exp2(vec::broadcast(below)));
    const float right = vec::first(vec::exp2(vec::broadcast(at)));
    ASSERT_LE(ulps(left, std::exp2(static_cast<double>(below))), 3.0) << whole;
    ASSERT_LE(ulps(right, std::exp2(static_cast<double>(at))), 3.0) << whole;
  }
}

TEST(exp, loses_no_more_than_the_product_with_log2_e) {
  // Rounding x * log2(e) moves the result by |x| units, on top of exp2's own error.
  double worst = 0.0;
  float where = 0.0f;
  sweep(
      1021, [](auto x) { return tessera::prim::exp_of<tessera::test::native_isa>(x); },
      [&](float x, float y) {
        if (!(x >= -87.0f && x <= 87.0f)) return;
        const double error = ulps(y, std::exp(static_cast<double>(x))) - 2.0 * std::fabs(x);
        if (error > worst) worst = error, where = x;
      });
  EXPECT_LE(worst, 3.0) << "at " << where;
}

TEST(exp, of_one_float_has_the_bits_of_the_vector_form) {
  for (float x = -90.0f; x < 80.0f; x += 0.37f) {
    using tessera::test::native_isa;
    EXPECT_EQ(tessera::prim::exp_of<native_isa>(x),
              vec::first(tessera::prim::exp_of<native_isa>(vec::broadcast(x))));
  }
  EXPECT_EQ(tessera::prim::exp_of<tessera::test::native_isa>(-HUGE_VALF), 0.0f);
}

TEST(precise_exp, is_within_two_ulps) {
  double worst = 0.0;
  float where = 0.0f;
  sweep(
      1021, [](auto x) { return tessera::prim::precise_exp_of<tessera::test::native_isa>(x); },
      [&](float x, float y) {
        if (x < -100.0f) {
          ASSERT_EQ(y, 0.0f) << x;
        }
        if (!(x >= -87.0f && x <= 88.0f)) return;
        const double error = ulps(y, std::exp(static_cast<double>(x)));
        if (error > worst) worst = error, where = x;
      });
  EXPECT_LE(worst, 2.0) << "at " << where;
  EXPECT_TRUE(std::isnan(vec::first(tessera::prim::precise_exp_of<tessera::test::native_isa>(
      vec::broadcast(std::numeric_limits<float>::quiet_NaN())))));
}

TEST(softplus, is_within_four_ulps) {
  double worst = 0.0;
  float where = 0.0f;
  sweep(
      1021, [](auto x) { return tessera::prim::softplus_of<tessera::test::native_isa>(x); },
      [&](float x, float y) {
        if (!(x >= -87.0f && x <= 1e30f)) return;
        const double truth = std::fmax(static_cast<double>(x), 0.0) +
                             std::log1p(std::exp(-std::fabs(static_cast<double>(x))));
        const double error = ulps(y, truth);
        if (error > worst) worst = error, where = x;
      });
  EXPECT_LE(worst, 4.0) << "at " << where;
}

TEST(decay, is_off_by_an_ulp_near_one_and_by_few_elsewhere) {
  double worst = 0.0;
  float where = 0.0f;
  sweep(
      1021, [](auto x) { return tessera::prim::decay_of<tessera::test::native_isa>(x); },
      [&](float x, float y) {
        if (!(x >= -87.0f && x <= 88.0f)) return;
        const double magnitude = std::fabs(static_cast<double>(x));
        const double allowed = magnitude < 0.25 ? 1.0 : 2.0 + magnitude / 16.0;
        const double error = ulps(y, std::exp(static_cast<double>(x))) / allowed;
        if (error > worst) worst = error, where = x;
      });
  EXPECT_LE(worst, 1.0) << "at " << where;
}

TEST(decay, has_ends) {
  const auto decay_of = [](float x) {
    return vec::first(tessera::prim::decay_of<tessera::test::native_isa>(vec::broadcast(x)));
  };
  EXPECT_EQ(decay_of(0.0f), 1.0f);
  EXPECT_EQ(decay_of(-0.0f), 1.0f);
  EXPECT_EQ(decay_of(-105.0f), 0.0f);
  EXPECT_EQ(decay_of(-1e30f), 0.0f);
  EXPECT_EQ(decay_of(-HUGE_VALF), 0.0f);
  EXPECT_EQ(decay_of(HUGE_VALF), decay_of(88.0f));
  EXPECT_LE(decay_of(-90.0f), 0x1p-126f);
  EXPECT_TRUE(std::isnan(decay_of(std::numeric_limits<float>::quiet_NaN())));
}

TEST(decay, of_several_registers_has_the_bits_of_one) {
  using isa = tessera::test::native_isa;
  for (float x = -110.0f; x < 90.0f; x += 0.37f) {
    vec::reg several[3] = {vec::broadcast(x), vec::broadcast(x / 64), vec::broadcast(-x)};
    tessera::prim::to_decays<isa>(several);
    EXPECT_EQ(vec::first(several[0]), tessera::prim::decay_of<isa>(x));
    EXPECT_EQ(vec::first(several[1]), tessera::prim::decay_of<isa>(x / 64));
    EXPECT_EQ(vec::first(several[2]), tessera::prim::decay_of<isa>(-x));
  }
}

TEST(tanh, is_within_three_ulps_everywhere) {
  double worst = 0.0;
  float where = 0.0f;
  sweep(
      1021, [](auto x) { return tessera::prim::tanh_of<tessera::test::native_isa>(x); },
      [&](float x, float y) {
        if (x == 0.0f || std::fabs(x) < 0x1p-60f) return;
        const double error = ulps(y, std::tanh(static_cast<double>(x)));
        if (error > worst) worst = error, where = x;
      });
  EXPECT_LE(worst, 3.0) << "at " << where;
  RecordProperty("worst_ulps", std::to_string(worst));
}

TEST(tanh, saturates_and_keeps_nan) {
  const auto tanh_of = [](float x) {
    return vec::first(tessera::prim::tanh_of<tessera::test::native_isa>(vec::broadcast(x)));
  };
  EXPECT_EQ(tanh_of(0.0f), 0.0f);
  EXPECT_EQ(tanh_of(HUGE_VALF), 1.0f);
  EXPECT_EQ(tanh_of(-HUGE_VALF), -1.0f);
  EXPECT_EQ(tanh_of(1e30f), 1.0f);
  EXPECT_TRUE(std::isnan(tanh_of(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
