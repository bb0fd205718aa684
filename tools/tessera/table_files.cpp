#include "table_files.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include <tessera/runtime/family.hpp>
#include <tessera/runtime/tables.hpp>

#include "failure.hpp"

namespace tessera::tool {
namespace {

constexpr std::string_view named_layer = "file";
constexpr std::string_view shipped_layer = "shipped";

opened_table open_one(std::string layer, const std::string& path) {
  return {std::move(layer), read_tables({&path, 1})};
}

/// The rows of one family by name, each with the digest of the kernels of its kind of device.
struct known_family {
  int semantic_version = 0;
  std::map<std::string_view, std::string_view> code_of_row;
};

const std::map<std::string_view, known_family>& known_families() {
  static const auto all = [] {
    std::map<std::string_view, known_family> families;
    for (const tessera::family* kind : tessera::families()) {
      known_family& known = families[kind->name];
      known.semantic_version = kind->semantic_version;
      for (const instance& row : kind->rows()) {
        known.code_of_row[row.name] = kind->code_version(kind_of(row.target));
      }
    }
    return families;
  }();
  return all;
}

}  // namespace

std::vector<opened_table> open_tables(const std::vector<std::string>& paths) {
  std::vector<opened_table> all;
  for (const std::string& path : paths) {
    opened_table table = open_one(std::string(named_layer), path);
    if (table.file().condition == lookup_file_condition::absent) {
      throw failure(fmt::format("{}: there is no such file", path));
    }
    if (table.file().condition == lookup_file_condition::unreadable) {
      throw failure(fmt::format("{}: cannot be read: {}", path, table.file().problem));
    }
    all.push_back(std::move(table));
  }
  if (!paths.empty()) return all;
  const table_locations where = process_table_locations();
  if (!where.user.empty()) all.push_back(open_one("user", where.user));
  for (const std::string& path : where.site) all.push_back(open_one("site", path));
  lookup_table shipped = read_shipped_table();
  if (!shipped.files().empty()) all.push_back({std::string(shipped_layer), std::move(shipped)});
  return all;
}

std::string place_of(const opened_table& table) {
  return table.layer == shipped_layer ? "inside the library" : table.file().path;
}

std::string title_of(const opened_table& table) {
  return table.layer == named_layer ? table.file().path : table.layer + " table " + place_of(table);
}

std::string places_text() {
  const table_locations where = process_table_locations();
  std::string text = where.user.empty() ? "no user table (HOME is not set)" : where.user;
  for (const std::string& path : where.site) text += ", " + path;
  return text;
}

std::string user_table_path() {
  std::string path = process_table_locations().user;
  if (!path.empty()) return path;
  throw failure(
      "there is no place for a user table: set TESSERA_TABLE_DIR, XDG_CACHE_HOME or HOME");
}

standing standing_of(const lookup_record& record) {
  const auto at = known_families().find(record.family);
  if (at == known_families().end()) return standing::foreign;
  const known_family& known = at->second;
  const auto row = known.code_of_row.find(record.row);
  if (row == known.code_of_row.end()) return standing::no_row;
  const bool comparable =
      record.semantic_version == known.semantic_version && record.code_version == row->second;
  return comparable ? standing::answer : standing::hint;
}

std::string_view name_of(standing state) noexcept {
  switch (state) {
    case standing::answer:
      return "answer";
    case standing::hint:
      return "hint";
    case standing::no_row:
      return "no_row";
    case standing::foreign:
      return "foreign";
  }
  return "invalid";
}

standing_counts count_standings(const lookup_table& table) {
  standing_counts counts;
  for (const lookup_record& record : table.records()) {
    switch (standing_of(record)) {
      case standing::answer:
        ++counts.answers;
        break;
      case standing::hint:
        ++counts.hints;
        break;
      case standing::no_row:
        ++counts.no_row;
        break;
      case standing::foreign:
        ++counts.foreign;
        break;
    }
  }
  return counts;
}

double gain_of(const lookup_record& record) {
  return record.default_us > 0 ? record.default_us / record.median_us : 0;
}

}  // namespace tessera::tool
