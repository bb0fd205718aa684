// Files of lookup tables: where they lie, reading them. Files are copied into memory: a mapped file
// on a network can fault while it is looked at.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tessera/lookup/impl/descriptor.hpp>
#include <tessera/lookup/impl/table.hpp>
#include <tessera/lookup/table.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/words.hpp>

namespace tessera {

namespace lookup_form {

/// A directory named by a variable of the base directory specification, empty unless absolute.
inline std::string_view absolute_directory(const char* value) noexcept {
  const std::string_view text = value == nullptr ? std::string_view() : value;
  return text.starts_with('/') ? text : std::string_view();
}

/// "directory/rest"; empty where the directory is.
[[gnu::cold]] inline std::string below(std::string_view directory, std::string_view rest) {
  if (directory.empty()) return {};
  std::string path(directory);
  while (path.ends_with('/')) path.pop_back();
  return path.append("/").append(rest);
}

}  // namespace lookup_form

[[gnu::cold]] table_locations locate_tables(std::string_view table_directory,
                                            const char* (*variable)(const char* name)) {
  using namespace lookup_form;
  const std::string in_directory = "tessera/" + std::string(table_file_name);
  table_locations where;
  if (table_directory.starts_with('/')) {
    where.user = below(table_directory, table_file_name);
  } else if (!table_directory.empty()) {
    // Nothing where the working directory has no name, or one that is too long.
    std::array<char, PATH_MAX> name{};
    const char* const working = ::getcwd(name.data(), name.size());
    where.user = below(below(working == nullptr ? "" : working, table_directory), table_file_name);
  } else if (const auto cache = absolute_directory(variable("XDG_CACHE_HOME")); !cache.empty()) {
    where.user = below(cache, in_directory);
  } else {
    where.user = below(absolute_directory(variable("HOME")), ".cache/" + in_directory);
  }
  const char* const set = variable("XDG_DATA_DIRS");
  std::string_view list = set == nullptr || *set == '\0' ? "/usr/local/share:/usr/share" : set;
  while (!list.empty()) {
    const std::string_view directory = text::split_off(list, ':');
    if (directory.starts_with('/')) where.site.push_back(below(directory, in_directory));
  }
  return where;
}

namespace lookup_form {

/// Longer files are no tables: two million records.
constexpr std::int64_t most_bytes = std::int64_t{1} << 30;

/// Reads a regular file to its end. Returns what is in the way, or nothing.
[[gnu::cold]] inline std::string read_all(int descriptor, std::string& text) {
  struct stat facts {};
  if (::fstat(descriptor, &facts) != 0) return files::system_reason();
  if (!S_ISREG(facts.st_mode)) return "is not a regular file";
  constexpr std::size_t block = 1 << 16;
  std::size_t used = 0;
  text.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(facts.st_size, 0, most_bytes)) + 1);
  while (static_cast<std::int64_t>(used) <= most_bytes) {
    if (used == text.size()) text.resize(used + block);
    const ssize_t got = ::read(descriptor, text.data() + used, text.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return files::system_reason();
    used += static_cast<std::size_t>(got);
    if (got > 0) continue;
    text.resize(used);
    return {};
  }
  return sentence({"is longer than ", most_bytes, " bytes"});
}

/// The text of a file; sets condition, problem and bytes of its state.
[[gnu::cold]] inline std::string read_file(lookup_file_state& file) {
  std::string text;
  // Not waiting for a writer, should the path be a pipe.
  const files::descriptor opened(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!opened && (errno == ENOENT || errno == ENOTDIR)) return text;
  file.problem = opened ? read_all(opened.number(), text) : files::system_reason();
  const bool sound = file.problem.empty();
  file.condition = sound ? lookup_file_condition::read : lookup_file_condition::unreadable;
  if (!sound) text.clear();
  return text;
}

/// Moves the records of a text to the end of `records` and the rest to the state of its file.
[[gnu::cold]] inline void read_records(std::string_view from, lookup_file_state& file,
                                       std::vector<lookup_record>& records) {
  lookup_text text = parse_table(from);
  file.bytes = static_cast<std::int64_t>(from.size());
  file.rows = static_cast<std::int64_t>(text.records.size());
  file.damaged = text.damaged;
  file.newer = text.newer;
  file.newest_schema = text.newest_schema;
  file.faults = std::move(text.faults);
  std::ranges::move(text.records, std::back_inserter(records));
}

}  // namespace lookup_form

[[gnu::cold]] std::string warning_of(const lookup_file_state& file) {
  if (file.condition == lookup_file_condition::unreadable) {
    return sentence({file.path, ": cannot be read (", file.problem, "); its rows are not used"});
  }
  std::string text;
  const std::int64_t lines = file.rows + file.damaged + file.newer;
  if (file.damaged > 0) {
    append(text, {file.path, ": ", file.damaged, " of ", lines,
                  file.damaged == 1 ? " lines is" : " lines are", " damaged and not used"});
    if (!file.faults.empty()) {
      append(text,
             {", first line ", file.faults.front().line, " (", file.faults.front().reason, ")"});
    }
  }
  if (file.newer > 0) {
    append(text, {text.empty() ? file.path : ";", text.empty() ? ": " : " "});
    append(text, {file.newer, " of ", lines, file.newer == 1 ? " lines has" : " lines have",
                  " schema ", file.newest_schema, ", this version reads up to ", lookup_schema});
  }
  return text;
}

[[gnu::cold]] lookup_table read_tables(std::span<const std::string> paths) {
  std::vector<lookup_record> records;
  std::vector<lookup_file_state> files;
  for (const std::string& path : paths) {
    lookup_file_state& file = files.emplace_back();
    file.path = path;
    const std::string text = lookup_form::read_file(file);
    if (file.condition == lookup_file_condition::read) {
      lookup_form::read_records(text, file, records);
    }
  }
  return lookup_table(std::move(records), std::move(files));
}

[[gnu::cold]] lookup_table read_shipped_table() {
  const std::string_view text = shipped_lookup();
  if (text.empty()) return {};
  std::vector<lookup_record> records;
  std::vector<lookup_file_state> files(1);
  files[0].path = "shipped";
  files[0].condition = lookup_file_condition::read;
  lookup_form::read_records(text, files[0], records);
  return lookup_table(std::move(records), std::move(files));
}

[[gnu::cold]] std::shared_ptr<const lookup_tables> load_lookup_tables(
    const table_locations& where) {
  auto all = std::make_shared<lookup_tables>();
  if (!where.user.empty()) all->user = read_tables({&where.user, 1});
  const std::vector<std::string> site(where.site.rbegin(), where.site.rend());
  all->site = read_tables(site);
  if (where.shipped) all->shipped = read_shipped_table();
  return all;
}

}  // namespace tessera
