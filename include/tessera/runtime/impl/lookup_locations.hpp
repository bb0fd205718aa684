// Where lookup tables lie.
#pragma once

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <string>
#include <string_view>

#include <unistd.h>

#include <tessera/runtime/environment.hpp>
#include <tessera/runtime/lookup/locations.hpp>

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

/// Empty where it has none, or a name that is too long.
inline std::string_view working_directory(std::array<char, PATH_MAX>& room) noexcept {
  const char* const path = ::getcwd(room.data(), room.size());
  return path == nullptr ? std::string_view() : path;
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
    std::array<char, PATH_MAX> room{};
    where.user = below(below(working_directory(room), table_directory), table_file_name);
  } else if (const auto cache = absolute_directory(variable("XDG_CACHE_HOME")); !cache.empty()) {
    where.user = below(cache, in_directory);
  } else {
    where.user = below(absolute_directory(variable("HOME")), ".cache/" + in_directory);
  }
  const char* const set = variable("XDG_DATA_DIRS");
  std::string_view list = set == nullptr || *set == '\0' ? "/usr/local/share:/usr/share" : set;
  while (!list.empty()) {
    const std::string_view directory = list.substr(0, list.find(':'));
    list.remove_prefix(std::min(directory.size() + 1, list.size()));
    if (directory.starts_with('/')) where.site.push_back(below(directory, in_directory));
  }
  return where;
}

table_locations process_table_locations() {
  return locate_tables(process_environment().table_directory,
                       [](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace tessera
