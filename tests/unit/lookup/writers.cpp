// Many writers, and writers that are killed. Properties 4 and 5 of the choosing layer.
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tessera/lookup/store.hpp>

#include "tests/unit/lookup/lookup_support.hpp"

namespace {

using namespace tessera;
using namespace tessera::testing;

/// Commits rows from `first` on until it is killed, and says which it has committed. Every second
/// commit is followed by a compaction. A row counts as committed when the call has returned.
[[noreturn]] void commit_until_killed(const std::string& path, std::int64_t first, int told) {
  for (std::int64_t number = first;; ++number) {
    if (!append_records(path, records_of(number, number + 1))) _exit(1);
    if (write(told, &number, sizeof number) != sizeof number) _exit(1);
    if (number % 2 == 1 && !compact_table(path)) _exit(1);
  }
}

/// Reads the next row that a child has committed; false once it is gone and all were read.
bool next_committed(int told, std::set<std::int64_t>& committed) {
  std::int64_t number = 0;
  if (read(told, &number, sizeof number) != sizeof number) return false;
  committed.insert(number);
  return true;
}

TEST(property_4, kill_9_during_append_and_during_compaction_loses_no_committed_row) {
  const scratch_folder folder;
  const std::string path = folder / "tessera/lookup.txt";
  std::mt19937 random(11);
  std::set<std::int64_t> committed;
  std::int64_t next = 0;
  int cut_compactions = 0;
  const int kills = of_full_count(1000);
  for (int round = 0; round < kills; ++round) {
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe(ends.data()), 0);
    const pid_t child = fork();
    if (child == 0) commit_until_killed(path, next, ends[1]);
    close(ends[1]);
    // Some commits pass, then it is killed somewhere in the next ones: they take some 5 ms.
    for (auto pass = random() % 3; pass > 0; --pass) {
      ASSERT_TRUE(next_committed(ends[0], committed)) << "the writer failed by itself";
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
    const bool reading = round % 3 == 0;
    if (reading) {
      // A reader at the same time sees every row of the rounds before.
      const lookup_table table = table_at(path);
      for (const std::int64_t number : committed) ASSERT_NE(found(table, number), nullptr);
    }
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int ended = 0;
    ASSERT_EQ(waitpid(child, &ended, 0), child);
    ASSERT_TRUE(WIFSIGNALED(ended)) << "the writer failed by itself";
    while (next_committed(ends[0], committed)) {
    }
    close(ends[0]);
    // The row in flight may be there or not.
    next = (committed.empty() ? next : *committed.rbegin()) + 2;
    const lookup_table table = table_at(path);
    for (const std::int64_t number : committed) {
      ASSERT_NE(found(table, number), nullptr) << "row " << number << " after kill " << round;
      ASSERT_TRUE(round % 50 != 49 || *found(table, number) == record_of(number));
    }
    cut_compactions += fs::exists(path + ".new") ? 1 : 0;
    fs::remove(path + ".new");
  }
  RecordProperty("kills", kills);
  RecordProperty("committed", static_cast<int>(committed.size()));
  RecordProperty("compactions_cut_in_two", cut_compactions);
  EXPECT_GT(committed.size(), static_cast<std::size_t>(kills) / 2);
}

TEST(property_5, eight_processes_with_1000_appends_each_leave_all_rows) {
  const scratch_folder folder;
  const std::string path = folder / "lookup.txt";
  constexpr int writers = 8;
  const int appends = of_full_count(1000);
  std::vector<pid_t> children;
  for (int writer = 0; writer <= writers; ++writer) {
    const pid_t child = fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    for (int count = 0; count < appends; ++count) {
      // The ninth process compacts all the while.
      const bool done = writer == writers
                            ? count % 10 != 0 || !fs::exists(path) || bool(compact_table(path))
                            : bool(append_records(path, records_of(writer * 10000 + count,
                                                                   writer * 10000 + count + 1)));
      if (!done) _exit(1);
      if (writer == writers) usleep(10000);
    }
    _exit(0);
  }
  for (const pid_t child : children) {
    int ended = -1;
    ASSERT_EQ(waitpid(child, &ended, 0), child);
    EXPECT_EQ(ended, 0);
  }
  const lookup_table table = table_at(path);
  EXPECT_EQ(table.records().size(), static_cast<std::size_t>(writers * appends));
  EXPECT_EQ(table.files()[0].damaged, 0);
  for (int writer = 0; writer < writers; ++writer) {
    for (int count = 0; count < appends; ++count) {
      const std::int64_t number = writer * 10000 + count;
      ASSERT_NE(found(table, number), nullptr) << number;
      ASSERT_EQ(*found(table, number), record_of(number));
    }
  }
}

}  // namespace
