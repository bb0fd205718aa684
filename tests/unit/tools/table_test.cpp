// `tessera table`: looking at tables, checking, compacting and joining them.
#include <string>

#include <gtest/gtest.h>

#include <tessera/families/attention/registry.hpp>
#include <tessera/lookup/record.hpp>
#include <tessera/runtime/family.hpp>

#include "command_runner.hpp"

namespace {

using namespace tessera::testing;
namespace json = boost::json;

tessera::lookup_record measured(int number) {
  const tessera::family& family = tessera::attention_record;
  return {.family = std::string(family.name),
          .semantic_version = family.semantic_version,
          .code_version = std::string(family.code_version(tessera::device_kind::cpu)),
          .device_class = "some_device",
          .identity = "type=f32 head_dim=64",
          .size = "q_len=" + std::to_string(number),
          .row = std::string(family.rows().front().name),
          .median_us = 100,
          .spread_us = 1,
          .default_row = std::string(family.rows().back().name),
          .default_us = 125,
          .samples = 30,
          .mode = "eager hot",
          .source = "tune",
          .environment = "",
          .date = "2026-11-21T09:30:00Z"};
}

std::string lines_of(int begin, int end) {
  std::string text;
  for (int number = begin; number < end; ++number) text += line_of(measured(number)) + "\n";
  return text;
}

/// Only the tables of this folder are looked at, beside the rows the build ships for this machine.
std::string only(const scratch_folder& folder) {
  return "XDG_DATA_DIRS=/nowhere TESSERA_TABLE_DIR='" + folder / "" + "'";
}

TEST(table, stats_count_what_a_file_holds) {
  const scratch_folder folder;
  tessera::lookup_record hint = measured(50);
  hint.code_version = "an older one";
  tessera::lookup_record other_side = measured(53);
  other_side.code_version = tessera::attention_code_version(tessera::device_kind::cuda);
  tessera::lookup_record absent = measured(51);
  absent.row = "attention.no.such.row";
  tessera::lookup_record foreign = measured(52);
  foreign.family = "another_family";
  write_file(folder / "lookup.txt", lines_of(0, 5) + lines_of(0, 1) + line_of(hint) + "\n" +
                                        line_of(absent) + "\n" + line_of(foreign) + "\n" +
                                        line_of(other_side) + "\nnoise\n");
  const outcome ended = invoke("table stats --json", only(folder));
  ASSERT_EQ(ended.status, 0) << ended.err;
  const json::value document = json_of(ended);
  const json::value& file = document.at("files").at(0);
  EXPECT_EQ(file.at("layer").as_string(), "user");
  EXPECT_EQ(file.at("path").as_string(), folder / "lookup.txt");
  EXPECT_EQ(file.at("condition").as_string(), "read");
  EXPECT_EQ(file.at("rows").to_number<int>(), 9);
  EXPECT_EQ(file.at("answers").to_number<int>(), 5);
  EXPECT_EQ(file.at("hints").to_number<int>(), 2);
  EXPECT_EQ(file.at("no_row").to_number<int>(), 1);
  EXPECT_EQ(file.at("foreign").to_number<int>(), 1);
  EXPECT_EQ(file.at("superseded").to_number<int>(), 1);
  EXPECT_EQ(file.at("damaged").to_number<int>(), 1);
  EXPECT_EQ(file.at("faults").at(0).at("line").to_number<int>(), 11);
  EXPECT_EQ(document.at("groups").at(1).at("median_gain").to_number<double>(), 1.25);

  const outcome shown = invoke("table stats", only(folder));
  EXPECT_EQ(shown.status, 0);
  EXPECT_NE(shown.out.find("1.25x"), std::string::npos) << shown.out;
  EXPECT_NE(shown.out.find("1 of 11 lines is damaged"), std::string::npos) << shown.out;
}

TEST(table, stats_tell_the_median_of_an_even_number_of_gains) {
  const scratch_folder folder;
  std::string text;
  for (const double gain : {1.0, 1.1, 1.3, 2.0}) {
    tessera::lookup_record record = measured(static_cast<int>(10 * gain));
    record.default_us = gain * record.median_us;
    text += line_of(record) + "\n";
  }
  write_file(folder / "table.txt", text);
  const json::value document = json_of(invoke("table stats --json " + folder / "table.txt"));
  const json::value& group = document.at("groups").at(0);
  EXPECT_NEAR(group.at("median_gain").to_number<double>(), 1.2, 1e-9);
  EXPECT_NEAR(group.at("best_gain").to_number<double>(), 2.0, 1e-9);
}

TEST(table, a_place_without_a_table_is_no_error) {
  const scratch_folder folder;
  for (const char* command : {"stats", "dump", "verify"}) {
    const outcome ended = invoke(std::string("table ") + command, only(folder));
    EXPECT_EQ(ended.status, 0) << command << ended.err;
  }
  EXPECT_TRUE(fs::is_empty(folder / "")) << "looking makes nothing";
}

TEST(table, dump_shows_every_row_that_holds) {
  const scratch_folder folder;
  write_file(folder / "lookup.txt", lines_of(1, 4) + lines_of(2, 3));
  const json::value document = json_of(invoke("table dump --json", only(folder)));
  json::array rows;  // of the user's layer: on some machines shipped rows stand beside them
  for (const json::value& row : document.at("rows").as_array()) {
    if (row.at("layer").as_string() == "user") rows.push_back(row);
  }
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].at("size").as_string(), "q_len=1");
  EXPECT_EQ(rows[0].at("gain").to_number<double>(), 1.25);
  EXPECT_EQ(rows[0].at("standing").as_string(), "answer");
  const outcome all = invoke("table dump", only(folder));
  EXPECT_NE(all.out.find("user table " + folder / "lookup.txt" + ": 3 rows\n"), std::string::npos)
      << all.out;
  EXPECT_EQ(all.out.find("shipped shipped"), std::string::npos) << all.out;
  const outcome shown = invoke("table dump " + folder / "lookup.txt");
  EXPECT_TRUE(shown.out.starts_with(folder / "lookup.txt" + ": 3 rows\n")) << shown.out;
  EXPECT_NE(shown.out.find("type=f32 head_dim=64"), std::string::npos) << shown.out;
  EXPECT_NE(shown.out.find("q_len=3"), std::string::npos) << shown.out;
}

TEST(table, verify_answers_whether_every_line_is_sound) {
  const scratch_folder folder;
  const std::string file = folder / "table.txt";
  write_file(file, lines_of(0, 3));
  EXPECT_EQ(invoke("table verify " + file).status, 0);
  std::string damaged = lines_of(0, 3);
  damaged[damaged.size() / 2] ^= 1;
  write_file(file, damaged);
  const outcome ended = invoke("table verify " + file);
  EXPECT_EQ(ended.status, 1);
  EXPECT_NE(ended.out.find("first line 2 (crc32c: is "), std::string::npos) << ended.out;
  const outcome document = invoke("table verify --json " + file);
  EXPECT_EQ(document.status, 1);
  EXPECT_EQ(json_of(document).at("files").at(0).at("damaged").to_number<int>(), 1);
  expect_refusal(invoke("table verify " + folder / "absent.txt"), "absent.txt: there is no such");
  expect_refusal(invoke("table verify " + folder / ""), "is not a regular file");
}

TEST(table, compact_keeps_what_holds_and_a_copy_of_what_is_damaged) {
  const scratch_folder folder;
  const std::string file = folder / "lookup.txt";
  const std::string before = lines_of(0, 5) + lines_of(0, 3) + "noise\n";
  write_file(file, before);
  const outcome ended = invoke("table compact --json", only(folder));
  ASSERT_EQ(ended.status, 0) << ended.err;
  const json::value done = json_of(ended).at("files").at(0);
  EXPECT_EQ(done.at("rows_before").to_number<int>(), 8);
  EXPECT_EQ(done.at("rows_after").to_number<int>(), 5);
  EXPECT_EQ(done.at("quarantine").as_string(), file + ".bad");
  EXPECT_EQ(contents_of(file + ".bad"), before);
  EXPECT_EQ(invoke("table verify", only(folder)).status, 0);
  expect_refusal(invoke("table compact " + folder / "absent.txt"), "absent.txt");
  expect_refusal(invoke("table compact", "env -u HOME -u XDG_CACHE_HOME -u TESSERA_TABLE_DIR"),
                 "TESSERA_TABLE_DIR");
}

TEST(table, compact_where_nobody_has_tuned_has_nothing_to_do) {
  const scratch_folder folder;
  const outcome ended = invoke("table compact --json", only(folder));
  EXPECT_EQ(ended.status, 0);
  EXPECT_NE(ended.err.find("lookup.txt: is absent, there is nothing to compact"),
            std::string::npos);
  EXPECT_TRUE(json_of(ended).at("files").as_array().empty());
}

TEST(table, merge_joins_into_the_named_table_or_the_users) {
  const scratch_folder folder;
  const std::string first = folder / "first.txt";
  const std::string second = folder / "second.txt";
  write_file(first, lines_of(0, 3));
  write_file(second, lines_of(2, 6));
  const outcome ended =
      invoke("table merge --json " + first + " " + second + " -o " + folder / "out.txt");
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(json_of(ended).at("rows_after").to_number<int>(), 6);
  EXPECT_EQ(invoke("table merge " + second, only(folder)).status, 0);
  EXPECT_EQ(contents_of(folder / "lookup.txt"),
            std::string(tessera::table_heading) + "\n" + contents_of(second));
  expect_refusal(invoke("table merge", only(folder)), "FILE");
  expect_refusal(invoke("table merge " + folder / "absent.txt", only(folder)), "absent.txt");
}

TEST(table, wrong_use_is_refused) {
  expect_refusal(invoke("table"), "stats, dump, verify, compact and merge");
  expect_refusal(invoke("table mend"), "mend");
  for (const char* command : {"stats", "dump", "verify", "compact", "merge"}) {
    const outcome ended = invoke(std::string("table ") + command + " --help");
    EXPECT_EQ(ended.status, 0) << command;
    EXPECT_NE(ended.out.find(std::string("Example:\n  tessera table ") + command),
              std::string::npos)
        << ended.out;
  }
}

}  // namespace
