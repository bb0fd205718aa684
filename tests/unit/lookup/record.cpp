// The text form of records.
#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include <tessera/lookup/record.hpp>

#include "tests/unit/lookup/lookup_support.hpp"

namespace {

using namespace tessera;
using namespace tessera::testing;

TEST(lookup_record, is_read_as_it_was_written) {
  const lookup_record record = record_of(17);
  const std::string line = line_of(record);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_TRUE(line.starts_with("tessera/1\tattention\t1\t")) << line;
  const auto read = parse_line(line);
  ASSERT_TRUE(read) << read.message();
  EXPECT_EQ(*read, record);
}

TEST(lookup_record, any_byte_may_be_in_its_texts) {
  lookup_record record = record_of(3);
  record.identity.clear();
  for (int byte = 0; byte < 256; ++byte) record.identity += static_cast<char>(byte);
  record.environment = "100 %\ttab\nline\r\x7f%09";
  record.source = "-";
  record.runner_up = "";
  const std::string line = line_of(record);
  const auto read = parse_line(line);
  ASSERT_TRUE(read) << read.message();
  EXPECT_EQ(*read, record);
  const lookup_text text = parse_table(line + "\n");
  ASSERT_EQ(text.records.size(), 1u);
  EXPECT_EQ(text.records[0], record);
}

TEST(lookup_record, numbers_keep_every_digit) {
  for (const double value : {0.1, 1.0 / 3, 1e-300, 1e300, 4.9e-324, 123456789.125}) {
    lookup_record record = record_of(1);
    record.median_us = value;
    record.spread_us = value / 7;
    const auto read = parse_line(line_of(record));
    ASSERT_TRUE(read) << read.message();
    EXPECT_EQ(read->median_us, value);
    EXPECT_EQ(read->spread_us, value / 7);
  }
}

TEST(lookup_record, a_record_that_cannot_be_stored_says_why) {
  const auto fault = [](auto change) {
    lookup_record record = record_of(1);
    change(record);
    const std::string why = fault_of(record);
    EXPECT_EQ(parse_line(line_of(record)).message(), why);
    return why;
  };
  EXPECT_EQ(fault([](auto&) {}), "");
  EXPECT_EQ(fault([](auto& r) { r.family = ""; }), "family: is empty");
  EXPECT_EQ(fault([](auto& r) { r.row = ""; }), "row: is empty");
  EXPECT_EQ(fault([](auto& r) { r.code_version = ""; }), "code: is empty");
  EXPECT_EQ(fault([](auto& r) { r.device_class = ""; }), "device: is empty");
  EXPECT_EQ(fault([](auto& r) { r.median_us = 0; }), "median_us: is 0, must be more than 0");
  EXPECT_EQ(fault([](auto& r) { r.median_us = std::nan(""); }),
            "median_us: is nan, must be more than 0");
  EXPECT_EQ(fault([](auto& r) { r.spread_us = -0.5; }), "spread_us: is -0.5, must be 0 or more");
  EXPECT_EQ(fault([](auto& r) { r.default_us = std::numeric_limits<double>::infinity(); }),
            "default_us: is inf, must be 0 or more");
  EXPECT_EQ(fault([](auto& r) { r.samples = -1; }), "samples: is -1, must be 0 or more");
  EXPECT_EQ(fault([](auto& r) { r.semantic_version = 0; }), "semantic: is 0, must be 1 or more");
  EXPECT_EQ(fault([](auto& r) { r.date = "yesterday"; }),
            "date: is 'yesterday', must have the form 2026-11-21T09:30:00Z");
  EXPECT_EQ(fault([](auto& r) { r.identity = r.size = r.mode = ""; }), "");
}

/// The line with its columns replaced and its checksum made right again by writing a longer one.
std::string resealed(std::string body) {
  // A line's checksum covers what is before it, so the checksum of a foreign body is found by
  // reading the complaint about a wrong one.
  const auto complaint = parse_line(body + "\t00000000").message();
  const std::string start = "crc32c: is ";
  EXPECT_TRUE(complaint.starts_with(start)) << complaint;
  return body + "\t" + complaint.substr(start.size(), 8);
}

std::string body_of(const lookup_record& record) {
  const std::string line = line_of(record);
  return line.substr(0, line.rfind('\t'));
}

TEST(lookup_record, a_newer_schema_is_told_from_damage) {
  std::string body = body_of(record_of(5));
  body.replace(0, std::string("tessera/1").size(), "tessera/7");
  const std::string line = resealed(body + "\ta new column");
  EXPECT_EQ(parse_line(line).message(), "schema: is 7, this version reads up to 1");
  const lookup_text text = parse_table(line + "\n" + line_of(record_of(6)) + "\n");
  EXPECT_EQ(text.newer, 1);
  EXPECT_EQ(text.newest_schema, 7);
  EXPECT_EQ(text.damaged, 0);
  ASSERT_EQ(text.records.size(), 1u);
  // Without a right checksum it is a damaged line of whatever schema.
  EXPECT_EQ(parse_table(body + "\t00000000\n").newer, 0);
  EXPECT_EQ(parse_table(body + "\t00000000\n").damaged, 1);
}

TEST(lookup_record, a_sound_frame_with_senseless_columns_is_refused) {
  const std::string body = body_of(record_of(5));
  EXPECT_EQ(parse_line(resealed(body + "\tmore")).message(),
            "columns: there are 21, a record has 20");
  EXPECT_EQ(parse_line(resealed("tessera/1\tfew")).message(),
            "columns: there are 3, a record has 20");
  EXPECT_EQ(parse_line(resealed("tessera/one")).message(), "schema: is not a number");
  EXPECT_EQ(parse_line(resealed("tessera/0")).message(), "schema: is not a number");
  std::string wrong = body;
  wrong.replace(wrong.find("\t105.25\t"), 8, "\t105.25x\t");
  EXPECT_EQ(parse_line(resealed(wrong)).message(), "median_us: cannot be read");
  wrong = body;
  wrong.replace(wrong.find("\ttune\t"), 6, "\ttun%4\t");
  EXPECT_EQ(parse_line(resealed(wrong)).message(), "source: cannot be read");
  EXPECT_EQ(parse_line("").message(), "schema: does not begin with 'tessera/'");
  EXPECT_EQ(parse_line("tessera/1").message(), "crc32c: is missing");
}

TEST(lookup_text, comments_empty_lines_and_foreign_line_ends_are_nothing) {
  const std::string first = line_of(record_of(1));
  const std::string second = line_of(record_of(2));
  const lookup_text text = parse_table("# a comment\n\n" + first + "\r\n\r\n#\n" + second);
  EXPECT_EQ(text.lines, 2);
  EXPECT_EQ(text.damaged, 0);
  ASSERT_EQ(text.records.size(), 2u);
  EXPECT_EQ(text.records[1], record_of(2));
  EXPECT_EQ(parse_table("").lines, 0);
}

TEST(lookup_text, a_record_behind_a_comment_sign_is_damage_not_a_comment) {
  const lookup_text text = parse_table("#" + line_of(record_of(1)).substr(1) + "\n");
  EXPECT_EQ(text.damaged, 1);
}

TEST(lookup_text, lines_that_lost_their_line_break_are_found_by_their_marker) {
  const std::string first = line_of(record_of(1));
  const std::string second = line_of(record_of(2));
  for (const std::string between : {"", "X", "\r", "\t"}) {
    const lookup_text text = parse_table(first + between + second + "\n");
    ASSERT_EQ(text.records.size(), 2u) << "joined by '" << between << "'";
    EXPECT_EQ(text.records[0], record_of(1));
    EXPECT_EQ(text.records[1], record_of(2));
    EXPECT_EQ(text.damaged, 1);
  }
  // A torn line with a sound one behind it.
  for (std::size_t length = 0; length < first.size(); ++length) {
    const lookup_text text = parse_table(first.substr(0, length) + second + "\n");
    ASSERT_EQ(text.records.size(), 1u) << length;
    EXPECT_EQ(text.records[0], record_of(2));
  }
}

TEST(lookup_text, damaged_lines_are_counted_and_the_first_are_named) {
  std::string damage;
  for (int line = 0; line < 100; ++line) damage += "not a record\n";
  const lookup_text text = parse_table(text_of(records_of(0, 3)) + damage);
  EXPECT_EQ(text.lines, 103);
  EXPECT_EQ(text.damaged, 100);
  ASSERT_EQ(text.faults.size(), lookup_text::most_faults);
  EXPECT_EQ(text.faults[0], (line_fault{4, "schema: does not begin with 'tessera/'"}));
}

}  // namespace
