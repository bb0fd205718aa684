// Memory between threads: shared, bounded, and never behind the tables.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/lookup/table.hpp>
#include <tessera/runtime/tables.hpp>

#include "measured.hpp"

namespace tessera::testing {
namespace {

TEST(Memory, IsSharedBetweenThreads) {
  shared_memory shared;
  selection_memory mine;
  question first_question(small_prompt);
  first_question.memory = &mine;
  first_question.process_memory = &shared;
  EXPECT_FALSE(first_question.answer()->remembered);
  std::thread([&] {
    selection_memory theirs;
    question two(small_prompt);
    two.memory = &theirs;
    two.process_memory = &shared;
    EXPECT_TRUE(two.answer()->remembered);
    two.process_memory = nullptr;
    EXPECT_TRUE(two.answer()->remembered) << "and by the thread itself from then on";
  }).join();
  forget_selections();
  EXPECT_FALSE(first_question.answer()->remembered);
}

TEST(Memory, AChoiceMadeWithOldTablesIsNotRememberedForNewOnes) {
  selection_memory memory;
  question question(small_prompt);
  question.memory = &memory;
  const inquiry slow = question.asked();  // reads the generation
  forget_selections();                    // the tables change meanwhile
  ASSERT_TRUE(select(slow));
  EXPECT_FALSE(question.answer()->remembered);
}

TEST(Tables, InForceStayValidWhenOthersTakeTheirPlace) {
  question question(small_prompt);
  auto first =
      std::make_shared<const lookup_tables>(tables_of({line_for(question, question.row())}));
  use_tables(first);
  const auto held = tables_in_force();
  EXPECT_EQ(held, first);
  const std::uint64_t before = selection_generation();
  use_tables(std::make_shared<const lookup_tables>(tables_of({})));
  EXPECT_GT(selection_generation(), before);
  first.reset();
  EXPECT_EQ(held->user.records().size(), 1u);
  EXPECT_TRUE(tables_in_force()->user.empty());
  use_tables(nullptr);
  EXPECT_NE(tables_in_force(), nullptr);
}

TEST(Threads, ChooseWhileTablesAndOverlaysComeAndGo) {
  constexpr int selecting = 64;
  question base(small_prompt);
  const std::string best(base.row());
  const std::string narrow = "attention.cpu_avx2.f32.d64.384x256";
  const std::string wide = "attention.cpu_avx512.f32.dany.every.896x256";
  const auto empty = std::make_shared<const lookup_tables>(tables_of({}));
  const auto filled = std::make_shared<const lookup_tables>(tables_of({line_for(base, wide)}));
  const overlay rules = *parse_overlay("*: => " + narrow);
  use_tables(empty);
  shared_memory shared;
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::atomic<long> chosen{0};

  std::vector<std::thread> threads;
  for (int index = 0; index < selecting; ++index) {
    threads.emplace_back([&, index] {
      selection_memory memory;
      for (int round = 0; !stop.load(std::memory_order_relaxed); ++round) {
        question question(small_prompt);
        question.memory = &memory;
        question.process_memory = &shared;
        const bool scoped = (round + index) % 3 == 0;
        const auto ask = [&] {
          inquiry asked = question.asked();
          const auto tables = tables_in_force();
          asked.tables = tables.get();
          asked.overlays.of_thread = overlay_scope::innermost();
          return std::string(select(asked)->row());
        };
        if (scoped) {
          const overlay_scope scope(rules);
          wrong += ask() != narrow;
        } else {
          const std::string row = ask();
          wrong += row != best && row != wide;
        }
        chosen.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  for (int round = 0; round < 200; ++round) {
    use_tables(round % 2 == 0 ? filled : empty);
    std::this_thread::yield();
  }
  while (chosen.load() < 10 * selecting) std::this_thread::yield();
  stop = true;
  for (std::thread& first : threads) first.join();
  EXPECT_EQ(wrong.load(), 0);
  use_tables(filled);
  base.memory = nullptr;
  inquiry asked = base.asked();
  const auto tables = tables_in_force();
  asked.tables = tables.get();
  EXPECT_EQ(select(asked)->row(), wide);
  use_tables(nullptr);
}

}  // namespace
}  // namespace tessera::testing
