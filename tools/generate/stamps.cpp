#include "stamps.hpp"

#include <fstream>
#include <optional>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include <tessera/lookup/record.hpp>

#include "output.hpp"

namespace tessera::generate {
namespace {

namespace fs = std::filesystem;

/// A table with the digest of the sources in every line; how many lines had another.
struct stamped_text {
  std::string text;
  int renewed = 0;
  int lines = 0;
};

/// The digest of the sources of the record's row; nothing for rows that are not there.
std::optional<std::string_view> version_of(const lookup_record& record,
                                           const targets_by_row& targets,
                                           const versions_by_family& versions) {
  const auto target = targets.find(record.row);
  const auto found = versions.find(record.family);
  if (target == targets.end() || found == versions.end()) return std::nullopt;
  return found->second[static_cast<std::size_t>(part_of(target->second))];
}

stamped_text stamped(const std::string& text, const targets_by_row& targets,
                     const versions_by_family& versions) {
  stamped_text result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (auto record = parse_line(line)) {
      ++result.lines;
      const auto version = version_of(*record, targets, versions);
      if (version && record->code_version != *version) {
        ++result.renewed;
        record->code_version = *version;
        line = line_of(*record);
      }
    }
    result.text += line + '\n';
  }
  return result;
}

}  // namespace

outcome<versions_by_family> versions_of_all(const fs::path& include,
                                            const std::vector<family>& families) {
  versions_by_family all;
  for (const family& each : families) {
    auto versions = code_versions_of(include, each);
    if (const auto* why = std::get_if<refusal>(&versions)) return *why;
    all.emplace(each.name, std::get<0>(std::move(versions)));
  }
  return all;
}

outcome<std::string> check_stamps(const std::vector<fs::path>& lookups,
                                  const std::vector<table>& tables,
                                  const versions_by_family& versions, stamp_action action) {
  const targets_by_row targets = targets_of(tables);
  std::string report;
  for (const fs::path& path : lookups) {
    const auto text = content_of(path);
    if (!text) return refusal{fmt::format("{}: cannot be read", path.string())};
    const stamped_text now = stamped(*text, targets, versions);
    if (now.renewed == 0) continue;
    if (action == stamp_action::tell) {
      report += fmt::format(
          "{}: {} of {} lines were measured with other kernels and answer nothing; tune again, or, "
          "where the rows are as fast as before, --restamp\n",
          path.string(), now.renewed, now.lines);
      continue;
    }
    if (!(std::ofstream(path, std::ios::binary) << now.text).flush()) {
      return refusal{fmt::format("{}: cannot be written", path.string())};
    }
    report += fmt::format("{}: {} of {} lines have the digest of the present kernels\n",
                          path.string(), now.renewed, now.lines);
  }
  return report;
}

}  // namespace tessera::generate
