// Writing tables: appending, compacting, joining, and what each refuses.
#include <algorithm>
#include <ctime>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <tessera/lookup/store.hpp>

#include "tests/unit/lookup/lookup_support.hpp"

namespace {

using namespace tessera;
using namespace tessera::testing;

status append(const std::string& path, const std::vector<lookup_record>& records) {
  return append_records(path, records);
}

/// A line of a schema that this version does not know, with a right checksum.
std::string newer_line() {
  std::string line = line_of(record_of(1));
  line.replace(0, std::string("tessera/1").size(), "tessera/2");
  const std::string complaint = parse_line(line).message();
  const std::string crc = complaint.substr(std::string("crc32c: is ").size(), 8);
  return line.substr(0, line.size() - 8) + crc + "\n";
}

TEST(lookup_store, nothing_is_made_unless_a_row_is_written) {
  const scratch_folder folder;
  const std::string path = folder / "cache/tessera/lookup.txt";
  EXPECT_TRUE(append(path, {}));
  lookup_record bad = record_of(1);
  bad.median_us = 0;
  const status refused = append(path, {record_of(0), bad});
  EXPECT_EQ(refused.code(), status_code::invalid_argument);
  EXPECT_EQ(refused.message(),
            path + ": record 2 of 2 cannot be stored: median_us: is 0, must be more than 0");
  EXPECT_FALSE(fs::exists(folder / "cache"));
  EXPECT_FALSE(compact_table(path));
  EXPECT_FALSE(merge_tables(std::vector<std::string>{folder / "absent"}, path));
  EXPECT_FALSE(fs::exists(folder / "cache"));

  ASSERT_TRUE(append(path, {record_of(0)}));
  struct stat facts {};
  ASSERT_EQ(stat((folder / "cache").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700u) << "a cache is its owner's";
  EXPECT_TRUE(contents_of(path).starts_with(table_heading));
  EXPECT_EQ(table_at(path).records().size(), 1u);
}

TEST(lookup_store, appended_rows_are_found_in_order) {
  const scratch_folder folder;
  const std::string path = folder / "lookup.txt";
  ASSERT_TRUE(append(path, records_of(0, 3)));
  ASSERT_TRUE(append(path, records_of(3, 4)));
  lookup_record again = record_of(1);
  again.row = "measured again";
  ASSERT_TRUE(append(path, {again}));
  const lookup_text text = parse_table(contents_of(path));
  EXPECT_EQ(text.damaged, 0);
  ASSERT_EQ(text.records.size(), 5u);
  EXPECT_EQ(text.records[4], again);
  EXPECT_EQ(found(table_at(path), 1)->row, "measured again");
}

TEST(lookup_store, a_torn_tail_does_not_spoil_the_next_row) {
  const scratch_folder folder;
  const std::string path = folder / "lookup.txt";
  const std::string whole = text_of(records_of(0, 2));
  for (std::size_t torn = 1; torn < 40; ++torn) {
    write_file(path, whole.substr(0, whole.size() - torn));
    ASSERT_TRUE(append(path, {record_of(9)}));
    const lookup_table table = table_at(path);
    EXPECT_NE(found(table, 0), nullptr);
    EXPECT_NE(found(table, 9), nullptr);
    EXPECT_EQ(found(table, 1) != nullptr, torn == 1) << torn;
  }
}

TEST(lookup_store, compaction_keeps_the_last_line_of_every_key_sorted) {
  const scratch_folder folder;
  const std::string path = folder / "lookup.txt";
  std::vector<lookup_record> records = records_of(0, 50);
  std::reverse(records.begin(), records.end());
  ASSERT_TRUE(append(path, records));
  for (lookup_record& record : records) record.row = "newer";
  ASSERT_TRUE(append(path, {records.begin(), records.begin() + 20}));
  lookup_record other_code = record_of(3);
  other_code.code_version = "an older code";
  ASSERT_TRUE(append(path, {other_code}));
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  const lookup_table before = table_at(path);

  const auto done = compact_table(path);
  ASSERT_TRUE(done) << done.message();
  EXPECT_EQ(done->rows_before, 71);
  EXPECT_EQ(done->rows_after, 51);
  EXPECT_EQ(done->damaged, 0);
  EXPECT_EQ(done->quarantine, "");
  EXPECT_LT(done->bytes_after, done->bytes_before);
  const lookup_text after = parse_table(contents_of(path));
  EXPECT_TRUE(std::equal(after.records.begin(), after.records.end(), before.records().begin(),
                         before.records().end()));
  struct stat facts {};
  ASSERT_EQ(stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0640u);
  EXPECT_FALSE(fs::exists(path + ".new"));

  const std::string once = contents_of(path);
  ASSERT_TRUE(compact_table(path));
  EXPECT_EQ(contents_of(path), once);
}

TEST(lookup_store, a_damaged_file_is_kept_beside_before_it_is_replaced) {
  const scratch_folder folder;
  const std::string path = folder / "lookup.txt";
  for (const std::string copy : {".bad", ".bad.2", ".bad.3"}) {
    const std::string damaged = text_of(records_of(0, 3)) + "noise\n" + line_of(record_of(3));
    write_file(path, damaged);
    const auto done = compact_table(path);
    ASSERT_TRUE(done) << done.message();
    EXPECT_EQ(done->damaged, 1);
    EXPECT_EQ(done->quarantine, path + copy);
    EXPECT_EQ(contents_of(path + copy), damaged);
    EXPECT_EQ(parse_table(contents_of(path)).damaged, 0);
    EXPECT_EQ(table_at(path).records().size(), 4u);
  }
}

TEST(lookup_store, a_newer_schema_is_refused_politely) {
  const scratch_folder folder;
  const std::string path = folder / "lookup.txt";
  const std::string text = text_of(records_of(0, 2)) + newer_line();
  write_file(path, text);
  const std::string refusal =
      ": 1 of 3 lines has schema 2, this version reads up to 1; nothing was changed";
  EXPECT_EQ(compact_table(path).message(), path + refusal);
  const std::string other = folder / "other.txt";
  EXPECT_EQ(merge_tables(std::vector<std::string>{path}, other).message(), path + refusal);
  EXPECT_FALSE(fs::exists(other));
  write_file(other, text_of(records_of(5, 6)));
  EXPECT_EQ(merge_tables(std::vector<std::string>{other}, path).message(), path + refusal);
  EXPECT_EQ(contents_of(path), text);

  // What is understood is used, and lines may be added: lines are independent.
  EXPECT_EQ(table_at(path).records().size(), 2u);
  EXPECT_EQ(warning_of(table_at(path).files()[0]),
            path + ": 1 of 3 lines has schema 2, this version reads up to 1");
  ASSERT_TRUE(append(path, {record_of(7)}));
  EXPECT_EQ(contents_of(path), text + line_of(record_of(7)) + "\n");
}

TEST(lookup_store, merging_prefers_newer_measurements_of_the_same_code) {
  const scratch_folder folder;
  const std::string mine = folder / "mine.txt";
  const std::string theirs = folder / "theirs.txt";
  const std::string output = folder / "made/output.txt";
  const auto dated = [](std::int64_t number, const char* date, const char* row, double median) {
    lookup_record record = record_of(number);
    record.date = date;
    record.row = row;
    record.median_us = median;
    return record;
  };
  lookup_record other_code = dated(1, "2020-01-01T00:00:00Z", "other code", 1);
  other_code.code_version = "other";
  write_file(mine, text_of({dated(1, "2026-01-02T00:00:00Z", "mine", 90),
                            dated(2, "2026-01-02T00:00:00Z", "mine", 10),
                            dated(3, "2026-01-02T00:00:00Z", "mine", 50)}));
  write_file(theirs, text_of({dated(1, "2026-01-01T00:00:00Z", "theirs", 50),
                              dated(2, "2026-01-03T00:00:00Z", "theirs", 99),
                              dated(3, "2026-01-02T00:00:00Z", "theirs", 50), other_code}));
  const auto done = merge_tables(std::vector<std::string>{mine, theirs}, output);
  ASSERT_TRUE(done) << done.message();
  EXPECT_EQ(done->rows_before, 7);
  EXPECT_EQ(done->rows_after, 4);
  const lookup_table table = table_at(output);
  EXPECT_EQ(found(table, 1, some_code)->row, "mine") << "newer, though slower";
  EXPECT_EQ(found(table, 1, "other")->row, "other code");
  EXPECT_EQ(found(table, 2)->row, "theirs") << "newer, though slower";
  EXPECT_EQ(found(table, 3)->row, "theirs") << "equally new: the later file";

  // The output takes part, as itself and through an input that is the same file.
  const std::string link = folder / "link.txt";
  fs::create_symlink(output, link);
  write_file(mine, text_of(records_of(10, 12)));
  const auto again = merge_tables(std::vector<std::string>{mine, link}, output);
  ASSERT_TRUE(again) << again.message();
  EXPECT_EQ(again->rows_before, 6);
  EXPECT_EQ(table_at(output).records().size(), 6u);
}

TEST(lookup_store, a_clock_that_goes_backwards_is_harmless) {
  const scratch_folder folder;
  const std::string path = folder / "lookup.txt";
  lookup_record before = record_of(1);
  before.date = "2026-11-21T10:00:00Z";
  lookup_record after = record_of(1);
  after.date = "1970-01-01T00:00:00Z";
  after.row = "measured last";
  ASSERT_TRUE(append(path, {before}));
  ASSERT_TRUE(append(path, {after}));
  EXPECT_EQ(found(table_at(path), 1)->row, "measured last");
  ASSERT_TRUE(compact_table(path));
  EXPECT_EQ(found(table_at(path), 1)->row, "measured last");
  EXPECT_EQ(table_at(path).records().size(), 1u);
}

TEST(lookup_store, a_symbolic_link_stays_one) {
  const scratch_folder folder;
  const std::string real = folder / "real.txt";
  const std::string link = folder / "lookup.txt";
  fs::create_symlink(real, link);
  ASSERT_TRUE(append(link, records_of(0, 2)));
  ASSERT_TRUE(compact_table(link));
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(table_at(real).records().size(), 2u);
}

TEST(lookup_store, what_is_no_regular_file_is_refused) {
  const scratch_folder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(append(pipe, {record_of(1)}).message(), pipe + ": is not a regular file");
  EXPECT_EQ(append(folder / "", {record_of(1)}).code(), status_code::io);
  EXPECT_EQ(append("/dev/null", {record_of(1)}).message(), "/dev/null: is not a regular file");
  write_file(folder / "file", "");
  EXPECT_EQ(append(folder / "file/lookup.txt", {record_of(1)}).code(), status_code::io);
}

TEST(lookup_store, a_writer_that_waited_does_not_write_to_a_file_that_was_replaced) {
  const scratch_folder folder;
  const std::string path = folder / "lookup.txt";
  ASSERT_TRUE(append(path, {record_of(0)}));
  // As compaction does: the lock is held on the old file while another takes its name.
  const int old = open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(old, LOCK_EX), 0);
  std::thread writer([&] { EXPECT_TRUE(append(path, {record_of(1)})); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  write_file(path + ".new", text_of(records_of(0, 1)));
  ASSERT_EQ(rename((path + ".new").c_str(), path.c_str()), 0);
  close(old);
  writer.join();
  EXPECT_NE(found(table_at(path), 0), nullptr);
  EXPECT_NE(found(table_at(path), 1), nullptr);
}

TEST(lookup_store, dates_order_as_texts) {
  const std::string now = utc_now();
  lookup_record record = record_of(1);
  record.date = now;
  EXPECT_EQ(fault_of(record), "");
  EXPECT_GT(now, "2020-01-01T00:00:00Z");
}

}  // namespace
