// Files that lost or changed bytes. Property 6 of the choosing layer, and the states that a loss of
// power leaves behind.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/lookup/record.hpp>
#include <tessera/lookup/store.hpp>
#include <tessera/lookup/table.hpp>

#include "tests/unit/lookup/lookup_support.hpp"

namespace {

using namespace tessera;
using namespace tessera::testing;

constexpr int rows = 200;

/// Records with short texts, an empty one and one with escapes: every byte of their file is tried.
std::vector<lookup_record> short_records() {
  std::vector<lookup_record> all = records_of(0, rows);
  for (lookup_record& record : all) {
    record.device_class = "cpu_avx2";
    record.identity = "type=f32";
    record.size = record.size.substr(0, record.size.find(" kv_len"));
    record.row = "attention.a";
    record.default_row = "attention.b";
    record.runner_up = "";
    record.environment = "100 %";
  }
  return all;
}

std::string whole_file(const std::vector<lookup_record>& records) {
  return std::string(table_heading) + "\n" + text_of(records);
}

/// How many of `all` are missing in `some`; -1 if it has another record or another order.
int missing(const std::vector<lookup_record>& some, const std::vector<lookup_record>& all) {
  std::size_t at = 0;
  for (const lookup_record& record : all) {
    if (at < some.size() && some[at] == record) ++at;
  }
  return at == some.size() ? static_cast<int>(all.size() - some.size()) : -1;
}

/// Which bytes a test of every byte looks at: each in the full count, else one in ten.
bool is_looked_at(std::size_t byte) {
  static const bool every = of_full_count(10) == 10;
  return every || byte % 10 == 0;
}

TEST(property_6, every_prefix_truncation_loads_without_crash_and_skips_bad_rows) {
  const std::vector<lookup_record> records = short_records();
  const std::string file = whole_file(records);
  std::vector<std::size_t> ends;  // of lines, without their breaks
  for (std::size_t at = 0; at < file.size(); ++at) {
    if (file[at] == '\n') ends.push_back(at);
  }
  for (std::size_t length = 0; length <= file.size(); ++length) {
    if (!is_looked_at(length)) continue;
    const lookup_text text = parse_table(std::string_view(file).substr(0, length));
    const auto whole = std::upper_bound(ends.begin(), ends.end(), length) - ends.begin();
    const int expected = std::max(0, static_cast<int>(whole) - 1);  // but for the heading
    ASSERT_EQ(text.records.size(), static_cast<std::size_t>(expected)) << length;
    ASSERT_EQ(missing(text.records, records), rows - expected) << length;
  }
}

TEST(property_6, every_single_byte_flip_loads_without_crash_and_loses_at_most_one_row) {
  const std::vector<lookup_record> records = short_records();
  const std::string file = whole_file(records);
  const std::size_t heading = table_heading.size() + 1;
  std::string flipped = file;
  std::size_t looks = 0;
  for (std::size_t at = 0; at < file.size(); ++at) {
    if (!is_looked_at(at)) continue;
    // Every bit, and the bytes that divide lines and columns. Where one byte in ten is looked at,
    // one value in five.
    std::string values = "\n\t";
    for (unsigned bit = 0; bit < 8; ++bit) {
      values += static_cast<char>(static_cast<unsigned char>(file[at]) ^ (1u << bit));
    }
    const std::size_t step = of_full_count(10) == 10 ? 1 : 5;
    for (std::size_t v = at / 10 % step; v < values.size(); v += step) {
      if (values[v] == file[at]) continue;
      flipped[at] = values[v];
      const lookup_text text = parse_table(flipped);
      const int lost = missing(text.records, records);
      ASSERT_TRUE(lost == 0 || lost == 1) << "byte " << at << " became " << int{values[v]};
      ASSERT_TRUE(lost == 0 || text.damaged > 0) << at;
      ASSERT_TRUE(at < heading || text.damaged > 0) << at;
      ASSERT_EQ(text.newer, 0);
      ++looks;
    }
    flipped[at] = file[at];
  }
  RecordProperty("flips", static_cast<int>(looks));
  EXPECT_EQ(lookup_table(parse_table(flipped).records).records().size(), std::size_t{rows});
}

TEST(property_6, files_of_noise_load_without_crash) {
  std::uint32_t state = 1;
  for (int round = 0; round < of_full_count(10000); ++round) {
    std::string noise;
    for (int count = 0; count < 400; ++count) {
      state = state * 1664525u + 1013904223u;
      const std::uint32_t pick = state >> 24;
      if (pick < 8) {
        noise += lookup_marker;
      } else if (pick < 16) {
        noise += "\t\n#%"[pick % 4];
      } else {
        noise += static_cast<char>(state >> 16);
      }
    }
    const lookup_text text = parse_table(noise);
    ASSERT_TRUE(text.records.empty());
    ASSERT_EQ(text.lines, text.damaged + text.newer);
  }
}

// What a loss of power can leave of an append whose file was synchronised before: any part of the
// new lines, or their length filled with zeros.
TEST(property_4, power_loss_during_append_loses_no_committed_row) {
  const scratch_folder folder;
  const std::string path = folder / "lookup.txt";
  const std::vector<lookup_record> committed = records_of(0, 20);
  const std::string before = whole_file(committed);
  const std::string added = text_of(records_of(20, 22));
  for (std::size_t kept = 0; kept <= added.size(); kept += of_full_count(10) == 10 ? 1 : 10) {
    for (const bool zeros : {false, true}) {
      std::string file = before + added.substr(0, kept);
      if (zeros) file.append(added.size() - kept, '\0');
      write_file(path, file);
      ASSERT_EQ(missing({committed.begin(), committed.end()}, records_of(0, 20)), 0);
      lookup_table table = table_at(path);
      for (int number = 0; number < 20; ++number) ASSERT_NE(found(table, number), nullptr);
      // The next writer finds its way, and so does the next reader.
      ASSERT_TRUE(append_records(path, records_of(30, 31)));
      table = table_at(path);
      for (int number = 0; number < 20; ++number) ASSERT_NE(found(table, number), nullptr);
      ASSERT_NE(found(table, 30), nullptr) << kept;
    }
  }
}

// Compaction writes aside and renames: after a loss of power the name has the old file or the new
// one, and beside it may lie any part of the new one.
TEST(property_4, power_loss_during_compaction_loses_no_committed_row) {
  const scratch_folder folder;
  const std::string path = folder / "lookup.txt";
  std::vector<lookup_record> committed = records_of(0, 20);
  committed.insert(committed.end(), committed.begin(), committed.end());
  const std::string old = whole_file(committed);
  write_file(path, old);
  ASSERT_TRUE(compact_table(path));
  const std::string compacted = contents_of(path);
  for (std::size_t kept = 0; kept <= compacted.size(); kept += 97) {
    write_file(path, old);
    write_file(path + ".new", compacted.substr(0, kept));
    ASSERT_EQ(table_at(path).records().size(), 20u);
    ASSERT_TRUE(append_records(path, records_of(30, 31)));
    const auto done = compact_table(path);
    ASSERT_TRUE(done) << done.message();
    EXPECT_EQ(table_at(path).records().size(), 21u);
    EXPECT_FALSE(fs::exists(path + ".new"));
  }
}

}  // namespace
