// Lines of lookup tables: writing, and reading of any bytes. Needs nothing else of impl/: programs
// without the library include it alone.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <tessera/lookup/record.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/words.hpp>

namespace tessera {

namespace crc32c_table {

constexpr auto make() {
  std::array<std::uint32_t, 256> values{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0u);
    values[byte] = value;
  }
  return values;
}

inline constexpr auto values = make();

}  // namespace crc32c_table

/// CRC-32C (Castagnoli), a byte a step: some 400 MB/s with a table of 1 KiB. Eight bytes a step are
/// three times as fast and take 8 KiB of every program; a table of 1,000 lines is checked in 1 ms.
constexpr std::uint32_t crc32c(std::string_view text) noexcept {
  std::uint32_t crc = 0xffffffffu;
  for (const char byte : text) {
    crc = (crc >> 8) ^ crc32c_table::values[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  }
  return ~crc;
}

static_assert(crc32c("123456789") == 0xe3069283u, "the check value of CRC-32C");

namespace lookup_form {

constexpr std::string_view hex_digits = "0123456789abcdef";
constexpr std::string_view upper_hex_digits = "0123456789ABCDEF";

/// A column between the schema and the checksum: one of the members is set.
struct column {
  std::string_view name;
  std::string lookup_record::*text = nullptr;
  double lookup_record::*time = nullptr;
  std::int64_t lookup_record::*count = nullptr;
  int lookup_record::*version = nullptr;
  bool required = false;  ///< a text that is not empty, a time of more than 0
};

/// The columns in their order.
constexpr std::array record_columns{
    column{.name = "family", .text = &lookup_record::family, .required = true},
    column{.name = "semantic", .version = &lookup_record::semantic_version},
    column{.name = "code", .text = &lookup_record::code_version, .required = true},
    column{.name = "device", .text = &lookup_record::device_class, .required = true},
    column{.name = "identity", .text = &lookup_record::identity},
    column{.name = "size", .text = &lookup_record::size},
    column{.name = "row", .text = &lookup_record::row, .required = true},
    column{.name = "median_us", .time = &lookup_record::median_us, .required = true},
    column{.name = "spread_us", .time = &lookup_record::spread_us},
    column{.name = "default_row", .text = &lookup_record::default_row},
    column{.name = "default_us", .time = &lookup_record::default_us},
    column{.name = "runner_up", .text = &lookup_record::runner_up},
    column{.name = "runner_up_us", .time = &lookup_record::runner_up_us},
    column{.name = "samples", .count = &lookup_record::samples},
    column{.name = "mode", .text = &lookup_record::mode},
    column{.name = "source", .text = &lookup_record::source},
    column{.name = "environment", .text = &lookup_record::environment},
    column{.name = "date", .text = &lookup_record::date},
};
constexpr std::size_t columns = record_columns.size() + 2;

constexpr bool must_be_escaped(char byte) noexcept {
  const auto code = static_cast<unsigned char>(byte);
  return code < 0x20 || code == 0x7f || byte == '%';
}

[[gnu::cold]] inline void append_text(std::string& line, std::string_view text) {
  if (text.empty()) line += '-';
  if (text == "-") {
    line += "%2D";
    return;
  }
  for (const char byte : text) {
    if (!must_be_escaped(byte)) {
      line += byte;
      continue;
    }
    const auto code = static_cast<unsigned char>(byte);
    line += '%';
    line += upper_hex_digits[code >> 4];
    line += upper_hex_digits[code & 15];
  }
}

[[gnu::cold]] inline std::string crc_text(std::string_view checked) {
  const std::uint32_t crc = crc32c(checked);
  std::string text;
  for (int shift = 28; shift >= 0; shift -= 4) text += hex_digits[(crc >> shift) & 15];
  return text;
}

[[gnu::cold]] inline bool read_text(std::string_view column, std::string& text) {
  text.clear();
  if (column == "-") return true;
  if (column.find('%') == std::string_view::npos) {
    text = column;
    return !column.empty();
  }
  for (std::size_t at = 0; at < column.size(); ++at) {
    if (column[at] != '%') {
      text += column[at];
      continue;
    }
    if (at + 2 >= column.size()) return false;
    const std::size_t high = upper_hex_digits.find(column[at + 1]);
    const std::size_t low = upper_hex_digits.find(column[at + 2]);
    if (high == std::string_view::npos || low == std::string_view::npos) return false;
    text += static_cast<char>(high * 16 + low);
    at += 2;
  }
  return true;
}

/// "2026-11-21T09:30:00Z": digits and signs in their places, so that texts order as times do.
[[gnu::cold]] inline bool is_date(std::string_view text) {
  constexpr std::string_view form = "dddd-dd-ddTdd:dd:ddZ";
  if (text.size() != form.size()) return false;
  for (std::size_t at = 0; at < form.size(); ++at) {
    const bool digit = text[at] >= '0' && text[at] <= '9';
    if (form[at] == 'd' ? !digit : text[at] != form[at]) return false;
  }
  return true;
}

[[gnu::cold]] inline std::string number_text(double number) {
  std::string digits;
  text::append_number(digits, number);
  return digits;
}

/// A line whose frame is sound: its schema and its columns.
struct frame {
  int schema = 0;
  std::array<std::string_view, columns> column{};
  std::size_t count = 0;  ///< columns there are; those beyond the array are counted only
};

/// Takes a line apart. Returns what is wrong with it, or nothing.
[[gnu::cold]] inline std::string open_frame(std::string_view line, frame& parts) {
  if (!line.starts_with(lookup_marker)) {
    return sentence({"schema: does not begin with '", lookup_marker, "'"});
  }
  const std::size_t last_tab = line.rfind('\t');
  if (last_tab == std::string_view::npos) return "crc32c: is missing";
  const std::string_view has = line.substr(last_tab + 1);
  if (const std::string is = crc_text(line.substr(0, last_tab)); has != is) {
    std::string shown;
    for (const char byte : has.substr(0, 8)) shown += must_be_escaped(byte) ? '?' : byte;
    return sentence({"crc32c: is ", is, ", the line has '", shown, "'"});
  }
  while (true) {
    const std::size_t tab = line.find('\t');
    if (parts.count < columns) parts.column[parts.count] = line.substr(0, tab);
    ++parts.count;
    if (tab == std::string_view::npos) break;
    line.remove_prefix(tab + 1);
  }
  const std::string_view schema = parts.column[0].substr(lookup_marker.size());
  if (!text::read_number(schema, parts.schema) || parts.schema < 1)
    return "schema: is not a number";
  return {};
}

/// Reads the columns of a frame of this schema. Returns what is wrong, or nothing.
[[gnu::cold]] inline std::string read_columns(const frame& parts, lookup_record& record) {
  if (parts.count != columns) {
    return sentence({"columns: there are ", parts.count, ", a record has ", columns});
  }
  for (std::size_t at = 0; at < record_columns.size(); ++at) {
    const column& part = record_columns[at];
    const std::string_view has = parts.column[at + 1];
    const bool good = part.text != nullptr    ? read_text(has, record.*part.text)
                      : part.time != nullptr  ? text::read_number(has, record.*part.time)
                      : part.count != nullptr ? text::read_number(has, record.*part.count)
                                              : text::read_number(has, record.*part.version);
    if (!good) return sentence({part.name, ": cannot be read"});
  }
  return fault_of(record);
}

enum class line_kind { record, damaged, newer };

/// What a line is; `reason` says why where it is not a record.
[[gnu::cold]] inline line_kind judge(std::string_view line, lookup_record& record, int& schema,
                                     std::string& reason) {
  frame parts;
  reason = open_frame(line, parts);
  if (!reason.empty()) return line_kind::damaged;
  schema = parts.schema;
  if (schema > lookup_schema) {
    reason = sentence({"schema: is ", schema, ", this version reads up to ", lookup_schema});
    return line_kind::newer;
  }
  reason = read_columns(parts, record);
  return reason.empty() ? line_kind::record : line_kind::damaged;
}

}  // namespace lookup_form

[[gnu::cold]] std::string fault_of(const lookup_record& record) {
  using namespace lookup_form;
  for (const column& part : record_columns) {
    const auto is = [&](const sentence_part& value, std::string_view needs) {
      return sentence({part.name, ": is ", value, needs});
    };
    if (part.text != nullptr && part.required && (record.*part.text).empty())
      return is("empty", "");
    if (part.time != nullptr) {
      const double time = record.*part.time;
      const bool good = std::isfinite(time) && (part.required ? time > 0 : time >= 0);
      if (!good) {
        return is(number_text(time),
                  part.required ? ", must be more than 0" : ", must be 0 or more");
      }
    }
    if (part.count != nullptr && record.*part.count < 0) {
      return is(record.*part.count, ", must be 0 or more");
    }
    if (part.version != nullptr && record.*part.version < 1) {
      return is(record.*part.version, ", must be 1 or more");
    }
  }
  if (is_date(record.date)) return {};
  return sentence({"date: is '", record.date, "', must have the form 2026-11-21T09:30:00Z"});
}

[[gnu::cold]] std::string line_of(const lookup_record& record) {
  using namespace lookup_form;
  std::string line(lookup_marker);
  line.reserve(512);
  text::append_number(line, lookup_schema);
  for (const column& part : record_columns) {
    line += '\t';
    if (part.text != nullptr) append_text(line, record.*part.text);
    if (part.time != nullptr) text::append_number(line, record.*part.time);
    if (part.count != nullptr) text::append_number(line, record.*part.count);
    if (part.version != nullptr) text::append_number(line, record.*part.version);
  }
  const std::string crc = crc_text(line);
  return line.append("\t").append(crc);
}

[[gnu::cold]] result<lookup_record> parse_line(std::string_view line) {
  lookup_record record;
  int schema = 0;
  std::string reason;
  if (lookup_form::judge(line, record, schema, reason) == lookup_form::line_kind::record) {
    return record;
  }
  return status(status_code::malformed, reason);
}

namespace lookup_form {

/// Reads a text line by line into what it holds.
class reader {
 public:
  [[gnu::cold]] lookup_text read(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      std::string_view line = text.substr(0, end);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      ++number_;
      if (line.ends_with('\r')) line.remove_suffix(1);
      const bool comment = line.starts_with('#') && line.find('\t') == std::string_view::npos;
      if (line.empty() || comment) continue;
      std::string reason;
      if (!take(line, reason)) salvage(line, reason);
    }
    return std::move(all_);
  }

 private:
  /// True if the whole line is sound.
  [[gnu::cold]] bool take(std::string_view line, std::string& reason) {
    lookup_record record;
    int schema = 0;
    const line_kind kind = judge(line, record, schema, reason);
    if (kind == line_kind::damaged) return false;
    ++all_.lines;
    all_.newest_schema = std::max(all_.newest_schema, schema);
    if (kind == line_kind::newer) {
      ++all_.newer;
    } else {
      all_.records.push_back(std::move(record));
    }
    return true;
  }

  /// A line that is not sound may be several that lost their line breaks: what a marker begins is
  /// tried up to the next marker, and once more without the byte before that.
  [[gnu::cold]] void salvage(std::string_view line, const std::string& reason) {
    std::size_t begin = line.find(lookup_marker);
    std::string ignored;
    while (begin != std::string_view::npos) {
      const std::size_t next = line.find(lookup_marker, begin + 1);
      const std::string_view piece = line.substr(begin, next - begin);
      if (piece.size() < line.size() && !take(piece, ignored)) {
        static_cast<void>(take(piece.substr(0, piece.size() - 1), ignored));
      }
      begin = next;
    }
    ++all_.lines;
    ++all_.damaged;
    if (all_.faults.size() < lookup_text::most_faults) all_.faults.push_back({number_, reason});
  }

  lookup_text all_;
  std::int64_t number_ = 0;
};

}  // namespace lookup_form

[[gnu::cold]] lookup_text parse_table(std::string_view text) {
  return lookup_form::reader().read(text);
}

}  // namespace tessera
