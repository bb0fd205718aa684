// Finishing a row of the online softmax against its definition in double, sinks and empty rows
// included.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/prim/common/online_softmax.hpp>

namespace {

using tessera::prim::finish_row;
using tessera::prim::minus_infinity;
using tessera::prim::softmax_result;
using tessera::prim::softmax_state;

softmax_state state_of(const std::vector<double>& logits) {
  softmax_state state;
  double maximum = -HUGE_VAL, sum = 0.0;
  for (const double logit : logits) maximum = std::fmax(maximum, logit);
  for (const double logit : logits) sum += std::exp(logit - maximum);
  if (!logits.empty()) {
    state.maximum = static_cast<float>(maximum);
    state.denominator = static_cast<float>(sum);
  }
  return state;
}

void expect_finishes(const std::vector<double>& logits, const std::vector<float>& sinks) {
  double maximum = -HUGE_VAL, sum = 0.0;
  for (const double logit : logits) maximum = std::fmax(maximum, logit);
  for (const float sink : sinks) maximum = std::fmax(maximum, static_cast<double>(sink));
  for (const double logit : logits) sum += std::exp(logit - maximum);
  for (const float sink : sinks) {
    sum += sink == -HUGE_VALF ? 0.0 : std::exp(static_cast<double>(sink) - maximum);
  }
  const softmax_state state = state_of(logits);
  for (const bool normalize : {true, false}) {
    const softmax_result ours =
        finish_row(state, sinks.data(), static_cast<int>(sinks.size()), 1, normalize);
    const double size = std::fmax(1.0, std::fabs(maximum));
    EXPECT_NEAR(ours.lse, maximum + std::log(sum), 1e-6 * size);
    EXPECT_NEAR(ours.row_max, maximum, 1e-6 * size);
    if (logits.empty()) {
      EXPECT_EQ(ours.scale, 0.0f);
      continue;
    }
    double own = -HUGE_VAL;
    for (const double logit : logits) own = std::fmax(own, logit);
    const double want = std::exp(own - maximum) / (normalize ? sum : 1.0);
    EXPECT_NEAR(ours.scale, want, 2e-6 * size * want + 1e-37);
  }
}

TEST(finish_row, without_sinks) {
  expect_finishes({0.5, -1.0, 2.0}, {});
  expect_finishes({-300.0}, {});
  expect_finishes({1000.0, 999.0}, {});
}

TEST(finish_row, with_sinks_above_and_below) {
  expect_finishes({0.5, -1.0, 2.0}, {0.0f, 1.0f});
  expect_finishes({0.5, -1.0, 2.0}, {5.0f});
  expect_finishes({0.5}, {-HUGE_VALF, 0.25f});
  expect_finishes({0.5}, {-1e4f});
  expect_finishes({0.5}, {60.0f});
}

TEST(finish_row, sinks_alone) {
  expect_finishes({}, {0.5f, -0.5f});
}

TEST(finish_row, nothing_at_all_is_zero_and_minus_infinity) {
  const float hidden[] = {-HUGE_VALF};
  for (const int count : {0, 1}) {
    const softmax_result ours = finish_row({}, hidden, count, 1, true);
    EXPECT_EQ(ours.scale, 0.0f);
    EXPECT_EQ(ours.weight_scale, 0.0f);
    EXPECT_EQ(ours.lse, -HUGE_VALF);
    EXPECT_EQ(ours.row_max, -HUGE_VALF);
  }
}

TEST(finish_row, an_infinite_sink_takes_everything) {
  const float sinks[] = {HUGE_VALF, 0.0f};
  const softmax_result ours = finish_row(state_of({1.0, 2.0}), sinks, 2, 1, true);
  EXPECT_EQ(ours.scale, 0.0f);
  EXPECT_EQ(ours.lse, HUGE_VALF);
}

TEST(finish_row, nan_stays_visible) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(finish_row({1.0f, nan}, nullptr, 0, 1, true).lse));
  EXPECT_TRUE(std::isnan(finish_row({nan, nan}, nullptr, 0, 1, true).lse));
  for (const float sink : {0.0f, 200.0f, std::numeric_limits<float>::infinity()}) {
    for (const float maximum : {1.0f, minus_infinity, nan}) {
      const softmax_result beside = finish_row({maximum, nan}, &sink, 1, 1, true);
      EXPECT_TRUE(std::isnan(beside.lse)) << maximum << ", " << sink;
      EXPECT_TRUE(std::isnan(beside.scale)) << maximum << ", " << sink;
    }
  }
}

TEST(finish_row, sinks_may_be_strided) {
  const float sinks[] = {1.0f, 99.0f, 2.0f, 99.0f};
  const float dense[] = {1.0f, 2.0f};
  const softmax_state state = state_of({0.0});
  EXPECT_EQ(finish_row(state, sinks, 2, 2, true).lse, finish_row(state, dense, 2, 1, true).lse);
}

}  // namespace
