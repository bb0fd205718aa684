// The cover solver against brute force, and its bound where it gives up.
#include "tools/tuner/cover.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/random.hpp"

namespace {

using namespace tessera::tuner;
using tessera::support::random_source;

cover_task random_task(random_source& random, std::int64_t most_problems, std::int64_t most_rows) {
  cover_task task;
  const auto problems = static_cast<std::size_t>(random.between(1, most_problems));
  const auto rows = static_cast<std::size_t>(random.between(1, most_rows));
  const double sparse = random.pick({0.0, 0.3, 0.6});
  for (std::size_t p = 0; p < problems; ++p) {
    task.weights.push_back(random.pick({1.0, 1.0, 10.0, 0.1 + random.uniform()}));
    std::vector<double> times;
    const double base = std::exp(6 * random.uniform());
    for (std::size_t r = 0; r < rows; ++r) {
      const double factor = random.pick({1.0, 1.02, 1.0 + random.uniform()});
      times.push_back(random.chance(sparse) ? unserved : base * factor);
    }
    times[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(rows)))] = base;
    task.seconds.push_back(std::move(times));
  }
  for (std::size_t r = 0; r < rows; ++r) {
    task.costs.push_back(random.pick({1.0, 2.0, random.uniform()}));
  }
  task.loss = random.pick({0.0, 0.01, 0.03, 0.1, 0.5});
  return task;
}

struct best_set {
  std::size_t size = 0;
  double seconds = unserved;
};

/// The smallest set, and among those the fastest, by looking at every set.
best_set brute_force(const cover_task& task) {
  const std::size_t rows = task.seconds.front().size();
  std::vector<std::size_t> all;
  for (std::size_t r = 0; r < rows; ++r) all.push_back(r);
  const double allowed = seconds_of(task, all) * (1 + task.loss) * (1 + 1e-12);
  best_set best;
  for (unsigned bits = 1; bits < (1u << rows); ++bits) {
    std::vector<std::size_t> set;
    for (std::size_t r = 0; r < rows; ++r) {
      if ((bits >> r & 1u) != 0) set.push_back(r);
    }
    const double seconds = seconds_of(task, set);
    if (seconds > allowed) continue;
    const bool smaller = best.size == 0 || set.size() < best.size;
    if (smaller || (set.size() == best.size && seconds < best.seconds)) {
      best = {set.size(), seconds};
    }
  }
  return best;
}

TEST(Cover, IsTheSmallestAndFastestOfAllSets) {
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    random_source random(seed);
    const cover_task task = random_task(random, 9, 11);
    const best_set want = brute_force(task);
    const cover found = smallest_cover(task);
    ASSERT_TRUE(found.exact) << seed;
    ASSERT_EQ(found.rows.size(), want.size) << seed;
    ASSERT_EQ(found.least_rows, want.size) << seed;
    ASSERT_NEAR(found.seconds, want.seconds, 1e-9 * want.seconds) << seed;
    ASSERT_LE(found.loss(), task.loss + 1e-9) << seed;
    ASSERT_TRUE(std::is_sorted(found.rows.begin(), found.rows.end())) << seed;
  }
}

TEST(Cover, GreedyServesEverythingWithinTheLoss) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    random_source random(seed);
    const cover_task task = random_task(random, 40, 30);
    const std::vector<std::size_t> rows = greedy_cover(task);
    std::vector<std::size_t> all;
    for (std::size_t r = 0; r < task.costs.size(); ++r) all.push_back(r);
    ASSERT_LE(seconds_of(task, rows), seconds_of(task, all) * (1 + task.loss) * (1 + 1e-9)) << seed;
    ASSERT_GE(rows.size(), smallest_cover(task).least_rows) << seed;
  }
}

TEST(Cover, StatesABoundWhereTheSearchGivesUp) {
  random_source random(7);
  cover_task task;
  for (int p = 0; p < 60; ++p) {
    task.weights.push_back(1);
    std::vector<double> times;
    for (int r = 0; r < 40; ++r) times.push_back(random.chance(0.9) ? unserved : 1.0);
    times[static_cast<std::size_t>(random.below(40))] = 1.0;
    task.seconds.push_back(std::move(times));
  }
  task.costs.assign(40, 1.0);
  task.most_nodes = 200;
  const cover given_up = smallest_cover(task);
  EXPECT_FALSE(given_up.exact);
  EXPECT_LT(given_up.least_rows, given_up.rows.size());
  EXPECT_TRUE(std::isfinite(given_up.seconds));
  task.most_nodes = 4'000'000;
  const cover proved = smallest_cover(task);
  EXPECT_GE(proved.rows.size(), given_up.least_rows);
  EXPECT_LE(proved.rows.size(), given_up.rows.size());
}

TEST(Cover, EqualSetsGoToTheCheaper) {
  const cover_task task{.weights = {1, 1},
                        .seconds = {{1, 1, unserved}, {unserved, 2, 2}},
                        .costs = {1, 9, 1},
                        .loss = 0};
  EXPECT_EQ(smallest_cover(task).rows, (std::vector<std::size_t>{1}));
  const cover_task twins{.weights = {1}, .seconds = {{3, 3}}, .costs = {5, 4}, .loss = 0};
  EXPECT_EQ(smallest_cover(twins).rows, (std::vector<std::size_t>{1}));
}

TEST(Cover, NamesProblemsThatNothingServes) {
  const cover_task task{.weights = {1, 1}, .seconds = {{1, 2}, {unserved, unserved}}};
  EXPECT_EQ(unservable(task), (std::vector<std::size_t>{1}));
  EXPECT_TRUE(smallest_cover({}).rows.empty());
}

TEST(Cover, FurtherRowsBuyLessAndLess) {
  random_source random(11);
  for (int turn = 0; turn < 50; ++turn) {
    cover_task task = random_task(random, 12, 10);
    task.loss = 0.5;
    const cover found = smallest_cover(task);
    double before = found.seconds;
    for (const further_row& row : further_rows(task, found.rows, 5)) {
      EXPECT_LT(row.seconds, before);
      EXPECT_GE(row.seconds, found.best_seconds * (1 - 1e-9));
      before = row.seconds;
    }
  }
}

}  // namespace
