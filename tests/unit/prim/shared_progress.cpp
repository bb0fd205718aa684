// Work that threads share piece by piece: each piece is one thread's, and who waited sees it done.
#include <cstddef>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/prim/cpu/shared_progress.hpp>

#include "native.hpp"

namespace {

using progress = tessera::prim::shared_progress<tessera::test::native_isa>;

constexpr int pieces = 4099;

/// Threads that outnumber the cores take `step` pieces at a time and write their number to each,
/// then wait for all and look at what the others wrote.
void share(int threads, int step) {
  progress shared;
  std::vector<int> takers(pieces, -1);
  std::vector<int> missing(static_cast<std::size_t>(threads), -1);
  std::vector<std::thread> team;
  for (int me = 0; me < threads; ++me) {
    team.emplace_back([&, me] {
      for (int first = shared.take(step); first < pieces; first = shared.take(step)) {
        const int end = first + step < pieces ? first + step : pieces;
        for (int i = first; i < end; ++i) takers[static_cast<std::size_t>(i)] = me;
        shared.finish(end - first);
      }
      shared.wait(pieces);
      int unseen = 0;
      for (const int taker : takers) unseen += taker < 0 || taker >= threads;
      missing[static_cast<std::size_t>(me)] = unseen;
    });
  }
  for (std::thread& first : team) first.join();
  EXPECT_GE(shared.taken(), pieces);
  EXPECT_TRUE(shared.is_done(pieces));
  EXPECT_FALSE(shared.is_done(pieces + 1)) << "some piece was done twice";
  for (const int unseen : missing) EXPECT_EQ(unseen, 0) << threads << " threads, steps of " << step;
}

TEST(shared_progress, every_piece_is_done_once_and_seen_by_all) {
  for (const int threads : {1, 2, 7, 32}) {
    for (const int step : {1, 16, 1000}) share(threads, step);
  }
}

TEST(shared_progress, begins_with_nothing_taken) {
  const progress shared;
  EXPECT_EQ(shared.taken(), 0);
  EXPECT_TRUE(shared.is_done(0));
  EXPECT_FALSE(shared.is_done(1));
}

}  // namespace
