// One measurement of a lookup table, and its text form.
//
// A lookup table is a text file, one record per line, columns divided by tabs:
//
//   tessera/1  family  semantic  code  device  identity  size  row  median_us  spread_us
//   default_row  default_us  runner_up  runner_up_us  samples  mode  source  environment  date  crc
//
// The first column is the marker of every record and its schema; the last is the CRC-32C, eight
// lower-case hex digits, of everything before its tab. These two hold for every schema there will
// ever be, so that a damaged line can be told from a newer one. "-" stands for an empty text; bytes
// below space, DEL and '%' are written as %XX. A line that begins with '#' and holds no tab is a
// comment, an empty line is nothing. Files that the store writes begin with `table_heading`.
//
// Lines are independent: a damaged line loses itself only, and a line that lost its line break (a
// writer that was killed, a flipped byte) is found again by its marker.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/spec/status.hpp>

namespace tessera {

/// The schema this version writes, and the newest it reads.
inline constexpr int lookup_schema = 1;

/// Every record begins with this and the number of its schema.
inline constexpr std::string_view lookup_marker = "tessera/";

/// First line of a file that the store made.
inline constexpr std::string_view table_heading =
    "# tessera lookup table: tessera/schema family semantic code device identity size row "
    "median_us "
    "spread_us default_row default_us runner_up runner_up_us samples mode source environment date "
    "crc32c";

/// A row that was measured for a class of problems on a class of devices. Times in microseconds.
/// Two records are of the same *key* if family, device_class, identity and size are equal; of two
/// with the same key and the same versions, the one that comes last in a file holds.
struct lookup_record {
  std::string family{};      ///< "attention"
  int semantic_version = 1;  ///< of the family's problem and key; other versions are not comparable
  std::string code_version{};  ///< digest of the family's kernels for such devices; else a hint
  std::string device_class{};  ///< canonical text of what makes timings comparable
  std::string identity{};      ///< exact part of the key: "name=value name=value", family's order
  std::string size{};         ///< bucketed part of the key, the same form; values are whole numbers
  std::string row{};          ///< stable name of the winner
  double median_us = 0;       ///< of the winner; more than 0
  double spread_us = 0;       ///< median absolute deviation of the winner
  std::string default_row{};  ///< what would have run without this record; may be empty
  double default_us = 0;      ///< its median in the same session; 0: not measured
  std::string runner_up{};    ///< the second best; may be empty
  double runner_up_us = 0;    ///< its median; 0: there is none
  std::int64_t samples = 0;   ///< timed runs behind the median
  std::string mode{};         ///< how it was timed: "eager hot", "graph cold", ...
  std::string source{};       ///< who wrote it: "tune", ...; may be empty
  std::string environment{};  ///< product, driver, toolkit, library version; recorded, not compared
  std::string date{};         ///< UTC, "2026-11-21T09:30:00Z"

  friend bool operator==(const lookup_record&, const lookup_record&) = default;
};

/// Why a record cannot be stored ("median_us: is 0, must be more"); empty if it can.
std::string fault_of(const lookup_record& record);

/// The record as one line, without line break. Any text may be in it; only a record without a
/// fault can be read again.
std::string line_of(const lookup_record& record);

/// The record of a line (without line break). Fails with `malformed` and the column and fact, or
/// the schema where that is newer than `lookup_schema`.
result<lookup_record> parse_line(std::string_view line);

/// Something in a file that is not a record.
struct line_fault {
  std::int64_t line = 0;  ///< counted from 1
  std::string reason;     ///< "crc32c: is 1a2b3c4d, the line has 99887766"
  friend bool operator==(const line_fault&, const line_fault&) = default;
};

/// What a text holds. Reading never fails: what cannot be read is counted.
struct lookup_text {
  std::vector<lookup_record> records;  ///< in the order of the text, doubled keys included
  std::vector<line_fault> faults;      ///< the damaged lines, at most `most_faults` of them
  std::int64_t lines = 0;              ///< records, damaged and newer lines; no comments
  std::int64_t damaged = 0;  ///< lines that are not sound, even if records were found in them
  std::int64_t newer = 0;    ///< sound lines of a newer schema, passed over
  int newest_schema = 0;     ///< the highest schema of a sound line
  static constexpr std::size_t most_faults = 20;
};

/// Reads any bytes as a table.
lookup_text parse_table(std::string_view text);

}  // namespace tessera
