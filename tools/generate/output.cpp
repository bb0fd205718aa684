#include "output.hpp"

#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>

#include <fmt/format.h>

namespace tessera::generate {
namespace {

namespace fs = std::filesystem;

/// Paths, relative to `folder`, of the files in its generated subfolders.
std::set<std::string> present_files(const fs::path& folder) {
  std::set<std::string> found;
  for (const char* part : {"rows", "units", "include"}) {
    std::error_code ignored;
    for (const auto& entry : fs::recursive_directory_iterator(folder / part, ignored)) {
      if (entry.is_regular_file()) {
        found.insert(fs::relative(entry.path(), folder).generic_string());
      }
    }
  }
  return found;
}

/// "line 12: '...' instead of '...'": where two texts part.
std::string first_difference(const std::string& present, const std::string& wanted) {
  std::istringstream a(present);
  std::istringstream b(wanted);
  std::string line_a;
  std::string line_b;
  for (int number = 1;; ++number) {
    const bool more_a = static_cast<bool>(std::getline(a, line_a));
    const bool more_b = static_cast<bool>(std::getline(b, line_b));
    if (!more_a && !more_b) return "line ends";
    if (!more_a) return fmt::format("ends before line {}", number);
    if (!more_b) return fmt::format("goes on after line {}", number - 1);
    if (line_a != line_b) {
      return fmt::format("line {}: '{}' instead of '{}'", number, line_a, line_b);
    }
  }
}

bool is_generated(const std::string& content) {
  return content.substr(0, content.find('\n')).find(banner_start) != std::string::npos;
}

}  // namespace

std::optional<std::string> content_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream || fs::is_directory(path)) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

outcome<std::string> write_files(const fs::path& folder, const file_set& files) {
  int written = 0;
  int removed = 0;
  for (const auto& [name, text] : files) {
    const fs::path path = folder / name;
    const auto present = content_of(path);
    if (present == text) continue;
    if (present && !is_generated(*present)) {
      return refusal{fmt::format("{}: exists and was not generated; move it away", path.string())};
    }
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    std::ofstream stream(path, std::ios::binary);
    stream << text;
    if (!stream.flush()) return refusal{fmt::format("{}: cannot be written", path.string())};
    ++written;
  }
  for (const std::string& name : present_files(folder)) {
    const auto content = content_of(folder / name);
    if (files.contains(name) || !content || !is_generated(*content)) continue;
    fs::remove(folder / name);
    ++removed;
  }
  return fmt::format("{} files, {} written, {} removed", files.size(), written, removed);
}

std::string stale_files(const fs::path& folder, const file_set& files) {
  std::string report;
  for (const auto& [name, text] : files) {
    const auto present = content_of(folder / name);
    if (!present) {
      report += fmt::format("missing  {}\n", name);
    } else if (*present != text) {
      report += fmt::format("differs  {}: {}\n", name, first_difference(*present, text));
    }
  }
  for (const std::string& name : present_files(folder)) {
    if (!files.contains(name)) report += fmt::format("orphan   {}\n", name);
  }
  return report;
}

}  // namespace tessera::generate
