// Tables in memory.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <tessera/lookup/table.hpp>

#include "tests/unit/lookup/lookup_support.hpp"

namespace {
std::atomic<long> allocations{0};

// Out of line: GCC would see through it and take the pair below for a mistake.
[[gnu::noinline]] void release(void* memory) noexcept {
  std::free(memory);
}
}  // namespace

void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* memory) noexcept {
  release(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  release(memory);
}

namespace {

using namespace tessera;
using namespace tessera::testing;

lookup_record sized(const std::string& size, const std::string& row = "row") {
  lookup_record record = record_of(0);
  record.size = size;
  record.row = row;
  return record;
}

nearest_record near(const lookup_table& table, const std::string& size, double reach,
                    std::string_view code = {}) {
  return table.nearest("attention", some_device, some_identity, size, reach, code);
}

TEST(lookup_table, finds_exactly_what_is_in_it) {
  const lookup_table table(records_of(0, 1000));
  EXPECT_EQ(table.records().size(), 1000u);
  for (std::int64_t number = 0; number < 1000; ++number) {
    const lookup_record* const record = found(table, number);
    ASSERT_NE(record, nullptr) << number;
    EXPECT_EQ(*record, record_of(number));
  }
  EXPECT_EQ(found(table, 1000), nullptr);
  EXPECT_EQ(table.exact("flash_bwd", some_device, some_identity, size_of_number(1)), nullptr);
  EXPECT_EQ(table.exact("attention", "cpu_avx2", some_identity, size_of_number(1)), nullptr);
  EXPECT_EQ(table.exact("attention", some_device, "type=f32", size_of_number(1)), nullptr);
  EXPECT_EQ(table.exact("", "", "", ""), nullptr);
  EXPECT_EQ(lookup_table().exact("attention", some_device, some_identity, ""), nullptr);
  EXPECT_FALSE(near(lookup_table(), "q_len=1", 4));
}

TEST(lookup_table, texts_of_a_key_do_not_run_together) {
  lookup_record record = record_of(0);
  record.identity = "a=1";
  record.size = "b=2";
  const lookup_table table({record});
  EXPECT_NE(table.exact("attention", some_device, "a=1", "b=2"), nullptr);
  EXPECT_EQ(table.exact("attention", some_device, "a=1b", "=2"), nullptr);
  EXPECT_EQ(table.exact("attention", some_device, "", "a=1b=2"), nullptr);
}

TEST(lookup_table, the_last_line_of_a_key_holds) {
  std::vector<lookup_record> records = records_of(0, 10);
  lookup_record again = record_of(4);
  again.row = "another row";
  again.date = "1999-01-01T00:00:00Z";  // the clock went backwards: the line is still the last
  records.push_back(again);
  const lookup_table table(records);
  EXPECT_EQ(table.records().size(), 10u);
  EXPECT_EQ(found(table, 4)->row, "another row");
}

TEST(lookup_table, every_code_version_keeps_its_record) {
  std::vector<lookup_record> records;
  for (const char* const code : {"aaaa", "bbbb", "cccc"}) {
    records.push_back(record_of(7));
    records.back().code_version = code;
  }
  const lookup_table table(records);
  EXPECT_EQ(table.records().size(), 3u);
  EXPECT_EQ(found(table, 7, "aaaa")->code_version, "aaaa");
  EXPECT_EQ(found(table, 7, "bbbb")->code_version, "bbbb");
  EXPECT_EQ(found(table, 7, "cccc")->code_version, "cccc");
  EXPECT_EQ(found(table, 7, "dddd")->code_version, "cccc") << "the last one is a hint";
  EXPECT_EQ(found(table, 7)->code_version, "cccc");
  EXPECT_EQ(near(table, size_of_number(7), 1, "bbbb").record->code_version, "bbbb");
  EXPECT_FALSE(near(table, size_of_number(7), 1, "dddd"));
}

TEST(lookup_table, records_with_a_fault_are_left_out) {
  std::vector<lookup_record> records = records_of(0, 3);
  records[1].median_us = 0;
  EXPECT_EQ(lookup_table(records).records().size(), 2u);
}

TEST(lookup_table, records_are_sorted_with_sizes_as_numbers) {
  const lookup_table table(
      {sized("q=16"), sized("q=2"), sized("many words"), sized("q=128"), sized("p=9"), sized("")});
  std::vector<std::string> order;
  for (const lookup_record& record : table.records()) order.push_back(record.size);
  EXPECT_EQ(order, (std::vector<std::string>{"p=9", "q=2", "q=16", "q=128", "", "many words"}));
}

TEST(lookup_nearest, stays_within_the_declared_distance) {
  const lookup_table table({sized("batch=1 q_len=1024", "a"), sized("batch=4 q_len=4096", "b")});
  EXPECT_EQ(near(table, "batch=1 q_len=2048", 1).record->row, "a");
  EXPECT_EQ(near(table, "batch=1 q_len=2048", 1).log2_distance, 1.0);
  EXPECT_FALSE(near(table, "batch=1 q_len=2048", 0.99));
  EXPECT_EQ(near(table, "batch=2 q_len=4096", 3).record->row, "b") << "1 is closer than 3";
  EXPECT_EQ(near(table, "batch=1 q_len=1024", 0).log2_distance, 0.0);
  EXPECT_FALSE(near(table, "batch=1 q_len=1025", 0));
  EXPECT_FALSE(near(table, "batch=1 q_len=1024", -1));
  EXPECT_FALSE(near(table, "batch=1 q_len=1024", std::nan("")));
}

TEST(lookup_nearest, never_crosses_family_device_identity_or_names) {
  const lookup_table table({sized("batch=1 q_len=1024")});
  const std::string size = "batch=1 q_len=1024";
  EXPECT_TRUE(near(table, size, 9));
  EXPECT_FALSE(table.nearest("flash_bwd", some_device, some_identity, size, 9));
  EXPECT_FALSE(table.nearest("attention", "cpu_avx2", some_identity, size, 9));
  EXPECT_FALSE(table.nearest("attention", some_device, "type=f32", size, 9));
  for (const char* const other : {"batch=1", "q_len=1024", "q_len=1024 batch=1", "batch=1 k_len=1",
                                  "batch=1 q_len=1024 t=2", "", "batch", "batch=x q_len=1024",
                                  "batch=1  q_len=1024", "batch=-1 q_len=1024", "batch=1 "}) {
    EXPECT_FALSE(near(table, other, 9)) << other;
  }
}

TEST(lookup_nearest, zero_is_close_to_zero_only) {
  const lookup_table table({sized("window=0 q=8", "none"), sized("window=1 q=64", "one")});
  EXPECT_EQ(near(table, "window=0 q=16", 5).record->row, "none");
  EXPECT_EQ(near(table, "window=1 q=8", 1e300).record->row, "one");
  EXPECT_EQ(near(lookup_table({sized("window=0")}), "window=1", INFINITY).record, nullptr);
}

TEST(lookup_nearest, finds_what_looking_at_every_record_finds) {
  std::mt19937 random(7);
  const auto pick = [&](int most) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(most));
  };
  for (int round = 0; round < 40; ++round) {
    const bool powers = round % 2 == 0;
    const auto value = [&] { return powers ? std::int64_t{1} << pick(12) : pick(500); };
    std::vector<lookup_record> records;
    std::vector<std::vector<std::int64_t>> points;
    for (int count = 0; count < 300; ++count) {
      points.push_back({value(), value(), value()});
      const auto& p = points.back();
      records.push_back(sized("a=" + std::to_string(p[0]) + " b=" + std::to_string(p[1]) +
                              " c=" + std::to_string(p[2])));
    }
    const lookup_table table(records);
    for (int question = 0; question < 100; ++question) {
      const std::vector<std::int64_t> asked{value(), value(), value()};
      double least = INFINITY;
      for (const auto& p : points) {
        double distance = 0;
        for (std::size_t axis = 0; axis < 3; ++axis) {
          if (p[axis] == asked[axis]) continue;
          const bool beyond = p[axis] == 0 || asked[axis] == 0;
          distance += beyond ? INFINITY
                             : std::abs(std::log2(static_cast<double>(p[axis])) -
                                        std::log2(static_cast<double>(asked[axis])));
        }
        least = std::min(least, distance);
      }
      const nearest_record answer =
          near(table,
               "a=" + std::to_string(asked[0]) + " b=" + std::to_string(asked[1]) +
                   " c=" + std::to_string(asked[2]),
               2);
      if (least > 2.0001) {
        EXPECT_FALSE(answer);
      } else if (least < 1.9999) {
        ASSERT_TRUE(answer);
        EXPECT_NEAR(answer.log2_distance, least, 1e-4);
      }
    }
  }
}

TEST(lookup_table, questions_do_not_allocate) {
  const lookup_table table(records_of(0, 5000));
  const std::string here = size_of_number(4711);
  const std::string away = size_of_number(4711000);
  const std::string close = "batch=1 q_len=4711 kv_len=8192 threads=4";
  const long before = allocations.load();
  const lookup_record* const exact =
      table.exact("attention", some_device, some_identity, here, some_code);
  const lookup_record* const none = table.exact("attention", some_device, some_identity, away);
  const nearest_record nearest =
      table.nearest("attention", some_device, some_identity, close, 3, some_code);
  EXPECT_EQ(allocations.load(), before);
  EXPECT_NE(exact, nullptr);
  EXPECT_EQ(none, nullptr);
  EXPECT_TRUE(nearest);
}

TEST(lookup_files, later_files_win_and_every_file_has_a_state) {
  const scratch_folder folder;
  const std::string first = folder / "first.txt";
  const std::string second = folder / "second.txt";
  const std::string absent = folder / "absent.txt";
  lookup_record other = record_of(2);
  other.row = "from the second file";
  write_file(first, std::string(table_heading) + "\n" + text_of(records_of(0, 5)) +
                        line_of(record_of(1)) + "\nnonsense\n");
  write_file(second, line_of(other));
  const lookup_table table = read_tables(std::vector<std::string>{first, absent, second});
  EXPECT_EQ(table.records().size(), 5u);
  EXPECT_EQ(found(table, 2)->row, "from the second file");
  ASSERT_EQ(table.files().size(), 3u);
  const lookup_file_state& state = table.files()[0];
  EXPECT_EQ(state.condition, lookup_file_condition::read);
  EXPECT_EQ(state.rows, 6);
  EXPECT_EQ(state.superseded, 2) << "one by a line of its own, one by the second file";
  EXPECT_EQ(state.damaged, 1);
  EXPECT_EQ(state.newest_schema, 1);
  EXPECT_EQ(warning_of(state), first +
                                   ": 1 of 7 lines is damaged and not used, first line 8 (schema: "
                                   "does not begin with 'tessera/')");
  EXPECT_EQ(table.files()[1].condition, lookup_file_condition::absent);
  EXPECT_EQ(warning_of(table.files()[1]), "");
  EXPECT_EQ(warning_of(table.files()[2]), "");
}

TEST(lookup_files, what_is_no_regular_file_is_unreadable) {
  const scratch_folder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, folder / "", std::string("/dev/zero")}) {
    const lookup_table table = table_at(path);
    ASSERT_EQ(table.files()[0].condition, lookup_file_condition::unreadable) << path;
    EXPECT_EQ(warning_of(table.files()[0]),
              path + ": cannot be read (is not a regular file); its rows are not used");
  }
}

TEST(lookup_files, the_shipped_table_is_sound) {
  const lookup_text text = parse_table(shipped_lookup());
  EXPECT_EQ(text.damaged, 0);
  EXPECT_EQ(text.newer, 0);
  EXPECT_EQ(text.records.empty(), read_shipped_table().empty());
}

TEST(lookup_files, layers_are_read_from_their_places) {
  const scratch_folder folder;
  table_locations where;
  where.user = folder / "user.txt";
  where.site = {folder / "site_first.txt", folder / "site_second.txt"};
  lookup_record first = record_of(2);
  first.row = "first site";
  write_file(where.user, text_of(records_of(0, 2)));
  write_file(where.site[0], line_of(first) + "\n");
  write_file(where.site[1], text_of(records_of(2, 5)));
  const auto tables = load_lookup_tables(where);
  EXPECT_EQ(tables->user.records().size(), 2u);
  EXPECT_EQ(tables->site.records().size(), 3u);
  EXPECT_EQ(found(tables->site, 2)->row, "first site") << "the first directory has precedence";
  where.user.clear();
  where.site.clear();
  where.shipped = false;
  const auto none = load_lookup_tables(where);
  EXPECT_TRUE(none->user.empty() && none->site.empty() && none->shipped.empty());
}

}  // namespace
