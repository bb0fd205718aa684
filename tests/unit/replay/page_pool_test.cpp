// Pages and their users.
#include "tools/replay/page_pool.hpp"

#include <gtest/gtest.h>

namespace {

using namespace tessera::replay;

TEST(page_pool, gives_each_page_once) {
  page_pool pool(3);
  EXPECT_EQ(pool.take(), 0);
  EXPECT_EQ(pool.take(), 1);
  EXPECT_EQ(pool.take(), 2);
  EXPECT_EQ(pool.take(), std::nullopt);
  EXPECT_EQ(pool.used(), 3);
  pool.give_back(1);
  EXPECT_EQ(pool.free(), 1);
  EXPECT_EQ(pool.take(), 1);
}

TEST(page_pool, keeps_pages_of_prefixes_until_nothing_else_is_free) {
  page_pool pool(3);
  for (int n = 0; n < 3; ++n) ASSERT_TRUE(pool.take());
  EXPECT_TRUE(pool.keep_as(0, {.prefix = 5, .index = 0}));
  EXPECT_TRUE(pool.keep_as(1, {.prefix = 5, .index = 1}));
  EXPECT_FALSE(pool.keep_as(2, {.prefix = 5, .index = 1})) << "page 1 holds it";
  pool.give_back(1);
  pool.give_back(0);
  pool.give_back(2);
  EXPECT_EQ(pool.free(), 1);
  EXPECT_EQ(pool.kept(), 2);
  EXPECT_EQ(pool.find({.prefix = 5, .index = 1}), 1);
  EXPECT_EQ(pool.take(), 2) << "free before kept";
  EXPECT_EQ(pool.take(), 1) << "whose user left first";
  EXPECT_EQ(pool.find({.prefix = 5, .index = 1}), std::nullopt);
  EXPECT_EQ(pool.find({.prefix = 5, .index = 0}), 0);
  EXPECT_EQ(pool.given_up(), 1);
}

TEST(page_pool, shared_pages_stay_while_one_user_is_left) {
  page_pool pool(2);
  ASSERT_EQ(pool.take(), 0);
  ASSERT_TRUE(pool.keep_as(0, {.prefix = 0, .index = 0}));
  pool.share(0);
  EXPECT_EQ(pool.users_of(0), 2);
  pool.give_back(0);
  EXPECT_EQ(pool.used(), 1);
  pool.give_back(0);
  EXPECT_EQ(pool.used(), 0);
  EXPECT_EQ(pool.kept(), 1);
  pool.share(0);
  EXPECT_EQ(pool.kept(), 0);
  EXPECT_EQ(pool.take(), 1);
  EXPECT_EQ(pool.take(), std::nullopt) << "the shared page has a user";
}

}  // namespace
