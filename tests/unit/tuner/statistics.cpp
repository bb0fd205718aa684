// Medians, spreads and the decision: pure functions of numbers.
#include "tools/tuner/statistics.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/random.hpp"

namespace {

using namespace tessera::tuner;

timed_row row_of(std::string_view name, double median, double mad = 0, double resources = 0) {
  return {name, {.median = median, .mad = mad, .least = median, .count = 9}, resources};
}

TEST(Statistics, MedianAndMadAreOrderStatistics) {
  const std::array<double, 5> odd{5, 1, 4, 2, 100};
  const sample_statistics found = statistics_of(odd);
  EXPECT_EQ(found.median, 4);
  EXPECT_EQ(found.mad, 2);  // deviations 1 3 0 2 96
  EXPECT_EQ(found.least, 1);
  EXPECT_EQ(found.count, 5u);
  EXPECT_EQ(median_of({1, 2, 3, 10}), 2.5);
  EXPECT_EQ(statistics_of({}).count, 0u);
  EXPECT_EQ(median_of({}), 0);
}

TEST(Statistics, OneOutlierMovesNothing) {
  std::vector<double> seconds(21, 1.0);
  const sample_statistics quiet = statistics_of(seconds);
  seconds.back() = 1000;
  const sample_statistics loud = statistics_of(seconds);
  EXPECT_EQ(quiet.median, loud.median);
  EXPECT_EQ(quiet.mad, loud.mad);
}

TEST(Statistics, ErrorOfTheMedianIsThatOfManyDraws) {
  // Spread of medians of 25 bell-shaped values, against the estimate from one set's MAD.
  tessera::support::random_source random(3);
  std::vector<double> medians;
  std::vector<double> estimates;
  for (int set = 0; set < 400; ++set) {
    std::vector<double> values;
    for (int n = 0; n < 25; ++n) values.push_back(10 + static_cast<double>(random.bell()));
    medians.push_back(median_of(values));
    estimates.push_back(statistics_of(values).error());
  }
  double square = 0;
  for (const double median : medians) square += (median - 10) * (median - 10);
  const double spread = std::sqrt(square / static_cast<double>(medians.size()));
  EXPECT_NEAR(median_of(estimates), spread, 0.25 * spread);
}

TEST(Decide, TakesTheFastestBeyondGainAndNoise) {
  const std::array rows{row_of("slow", 1.0, 0.01), row_of("fast", 0.8, 0.01),
                        row_of("middle", 0.9, 0.01)};
  const decision made = decide(rows, 0, {});
  EXPECT_EQ(made.winner, 1u);
  EXPECT_EQ(made.runner_up, 2u);
  EXPECT_EQ(made.reason, decision_reason::faster);
  EXPECT_NEAR(made.gain, 1.25, 1e-12);
}

TEST(Decide, DefaultStaysBelowTheMinimumGain) {
  const std::array rows{row_of("standard", 1.0), row_of("fast", 0.96)};
  const decision made = decide(rows, 0, {});
  EXPECT_EQ(made.winner, 0u);
  EXPECT_EQ(made.reason, decision_reason::gain_too_small);
  EXPECT_EQ(made.gain, 1);
  EXPECT_EQ(decide(rows, 0, {.min_gain = 1.04}).winner, 1u);
}

TEST(Decide, DefaultStaysWithinThreeMads) {
  const std::array rows{row_of("standard", 1.0, 0.01), row_of("fast", 0.9, 0.034)};
  const decision made = decide(rows, 0, {});
  EXPECT_EQ(made.winner, 0u);
  EXPECT_EQ(made.reason, decision_reason::within_noise);
  const std::array quieter{row_of("standard", 1.0, 0.01), row_of("fast", 0.9, 0.033)};
  EXPECT_EQ(decide(quieter, 0, {}).winner, 1u);
}

TEST(Decide, DefaultThatIsFastestStays) {
  const std::array rows{row_of("standard", 1.0), row_of("slow", 1.2)};
  EXPECT_EQ(decide(rows, 0, {}).reason, decision_reason::default_best);
  EXPECT_EQ(decide(rows, 0, {}).runner_up, 1u);
}

TEST(Decide, EqualsGoToFewerResourcesThenToTheName) {
  const std::array rows{row_of("standard", 1.0), row_of("c", 0.800, 0.001, 2),
                        row_of("b", 0.805, 0.001, 1), row_of("a", 0.806, 0.001, 1),
                        row_of("far", 0.85, 0.001, 0)};
  EXPECT_EQ(rows[decide(rows, 0, {}).winner].name, "a");
}

TEST(Decide, ARowThatTiesButMayNotWinLoses) {
  // "cheap" is within the tie margin of "fast" but gains too little over the default.
  const std::array rows{row_of("standard", 1.0), row_of("fast", 0.950, 0.001, 9),
                        row_of("cheap", 0.957, 0.001, 1)};
  EXPECT_EQ(rows[decide(rows, 0, {}).winner].name, "fast");
}

TEST(Decide, WithoutADefaultTheFastestWins) {
  std::array rows{row_of("standard", 1.0), row_of("slow", 2.0)};
  rows[0].time.count = 0;
  const decision made = decide(rows, 0, {});
  EXPECT_EQ(made.winner, 1u);
  EXPECT_EQ(made.reason, decision_reason::default_failed);
  rows[1].time.count = 0;
  EXPECT_EQ(decide(rows, 0, {}).winner, no_row);
  EXPECT_EQ(decide(rows, 0, {}).reason, decision_reason::nothing_timed);
}

TEST(Decide, DoesNotDependOnTheOrderOfRows) {
  std::vector<timed_row> rows{row_of("d", 1.0, 0.002, 4), row_of("a", 0.81, 0.002, 2),
                              row_of("b", 0.80, 0.002, 2), row_of("c", 0.90, 0.002, 1)};
  for (int turn = 0; turn < 4; ++turn) {
    std::size_t standard = 0;
    while (rows[standard].name != "d") ++standard;
    EXPECT_EQ(rows[decide(rows, standard, {}).winner].name, "b");
    std::rotate(rows.begin(), rows.begin() + 1, rows.end());
  }
}

TEST(GeometricMean, IsTheRootOfTheProduct) {
  const std::array<double, 3> gains{1.0, 2.0, 4.0};
  EXPECT_NEAR(geometric_mean(gains), 2.0, 1e-12);
  EXPECT_EQ(geometric_mean({}), 1.0);
}

}  // namespace
