// Work items over threads: every item once, by a thread that exists, the first ones first.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/prim/cpu/parallel.hpp>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "native.hpp"

namespace {

using tessera::prim::parallel_items;
using tessera::test::native_isa;

TEST(parallel_items, runs_every_item_once_by_a_thread_of_the_team) {
  for (const int threads : {1, 2, 3, 64}) {
    for (const std::int64_t items : {0, 1, 2, 63, 64, 65, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(items));
      std::atomic<int> outside{0};
      parallel_items<native_isa>(items, threads, [&](std::int64_t item, int thread) {
        if (thread < 0 || thread >= threads) outside.fetch_add(1);
        runs[static_cast<std::size_t>(item)].fetch_add(1);
      });
      EXPECT_EQ(outside.load(), 0) << threads << " threads, " << items << " items";
      for (std::size_t item = 0; item < runs.size(); ++item) {
        ASSERT_EQ(runs[item].load(), 1) << "item " << item << " of " << items;
      }
    }
  }
}

TEST(parallel_items, a_thread_number_belongs_to_one_thread_at_a_time) {
  constexpr int threads = 16;
  std::vector<std::atomic<int>> busy(threads);
  std::atomic<int> clashes{0};
  parallel_items<native_isa>(2000, threads, [&](std::int64_t, int thread) {
    auto& mine = busy[static_cast<std::size_t>(thread)];
    if (mine.fetch_add(1) != 0) clashes.fetch_add(1);
    mine.fetch_sub(1);
  });
  EXPECT_EQ(clashes.load(), 0);
}

// Longest first only pays if no item starts long after those behind it: when an item starts, at
// most one item per other thread with a smaller number has not started yet.
TEST(parallel_items, starts_items_in_order) {
  constexpr int threads = 4;
  constexpr std::int64_t items = 5000;
  std::atomic<std::int64_t> started{0};
  std::atomic<std::int64_t> furthest{0};
  parallel_items<native_isa>(items, threads, [&](std::int64_t item, int) {
    const std::int64_t before = started.fetch_add(1);
    std::int64_t seen = furthest.load();
    while (item - before > seen && !furthest.compare_exchange_weak(seen, item - before)) {
    }
  });
  EXPECT_EQ(started.load(), items);
  EXPECT_LT(furthest.load(), threads);
}

#if defined(_OPENMP) && defined(__linux__)
// Threads that start anew take hundreds of microseconds, and run where the first one is pinned.
TEST(parallel_items, few_items_end_no_threads) {
  constexpr int threads = 8;
  const auto threads_of_many = [] {
    std::vector<long> ids(threads, 0);
    parallel_items<native_isa>(4 * threads, threads, [&](std::int64_t, int thread) {
      ids[static_cast<std::size_t>(thread)] = syscall(SYS_gettid);
      std::this_thread::sleep_for(std::chrono::microseconds(100));  // for the others to get some
    });
    return ids;
  };
  int compared = 0;
  for (int round = 0; round < 20; ++round) {
    const std::vector<long> before = threads_of_many();
    parallel_items<native_isa>(2, threads, [](std::int64_t, int) {});
    const std::vector<long> after = threads_of_many();
    for (std::size_t thread = 1; thread < threads; ++thread) {
      if (before[thread] == 0 || after[thread] == 0) continue;  // it had no item
      ++compared;
      EXPECT_EQ(before[thread], after[thread]) << "thread " << thread << ", round " << round;
    }
  }
  EXPECT_GT(compared, 0) << "the first thread did all the work";
}
#endif

}  // namespace
