#include "measurement_log.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include <tessera/lookup/store.hpp>

namespace tessera::tuner {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view written_by = "tune ";
constexpr std::string_view decided_word = "decided";

std::string text_of_key(std::string_view family, int semantic_version, std::string_view code,
                        std::string_view device, std::string_view identity, std::string_view size) {
  std::string text(family);
  text += '\t' + std::to_string(semantic_version);
  for (const std::string_view part : {code, device, identity, size}) text.append("\t").append(part);
  return text;
}

std::string text_of_key(const problem_key& key) {
  return text_of_key(key.family, key.semantic_version, key.code_version, key.device_class,
                     key.identity, key.size);
}

/// "tune wrong: out differs" -> "wrong", "out differs".
bool split_source(std::string_view source, std::string_view& word, std::string_view& reason) {
  if (!source.starts_with(written_by)) return false;
  source.remove_prefix(written_by.size());
  const std::size_t colon = source.find(": ");
  word = source.substr(0, colon);
  reason = colon == std::string_view::npos ? std::string_view{} : source.substr(colon + 2);
  return true;
}

std::string source_of(std::string_view word, std::string_view reason) {
  std::string text(written_by);
  text.append(word);
  if (!reason.empty()) text.append(": ").append(reason);
  return text;
}

std::string contents_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

const logged_row* logged_problem::find(std::string_view row) const noexcept {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const logged_row& logged) { return logged.row == row; });
  return found == rows.end() ? nullptr : &*found;
}

measurement_log::measurement_log(const std::string& table_path) {
  if (table_path.empty()) return;
  folder_ = (fs::path(table_path).parent_path() / "measurements").string();
  std::error_code missing;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, missing)) {
    if (entry.path().extension() != ".txt") continue;
    for (const lookup_record& line : parse_table(contents_of(entry.path())).records) take(line);
  }
}

std::string measurement_log::path_of(std::string_view family) const {
  return (fs::path(folder_) / (std::string(family) + ".txt")).string();
}

void measurement_log::take(const lookup_record& line) {
  std::string_view word;
  std::string_view reason;
  if (!split_source(line.source, word, reason)) return;
  logged_problem& problem =
      problems_[text_of_key(line.family, line.semantic_version, line.code_version,
                            line.device_class, line.identity, line.size)];
  problem.default_row = line.default_row;
  problem.date = line.date;
  if (word == decided_word) {
    problem.winner = line.row;
    problem.reason = reason;
    return;
  }
  bool known = false;
  const row_state state = row_state_named(word, known);
  if (!known) return;
  const auto same = [&](const logged_row& row) { return row.row == line.row; };
  std::erase_if(problem.rows, same);
  problem.rows.push_back({line.row, state, std::string(reason), line.median_us * 1e-6,
                          line.spread_us * 1e-6, line.samples});
}

const logged_problem* measurement_log::find(const problem_key& key) const {
  const auto found = problems_.find(text_of_key(key));
  return found == problems_.end() ? nullptr : &found->second;
}

status measurement_log::append(const problem_key& key, const std::vector<logged_row>& rows,
                               const lookup_record& decided, std::string_view reason) {
  std::vector<lookup_record> lines;
  for (const logged_row& row : rows) {
    lookup_record line = decided;
    line.row = row.row;
    line.median_us = row.seconds * 1e6;
    line.spread_us = row.mad * 1e6;
    line.samples = row.samples;
    line.runner_up.clear();
    line.runner_up_us = 0;
    line.source = source_of(name_of(row.state), row.reason);
    lines.push_back(std::move(line));
  }
  if (!decided.row.empty()) {
    lookup_record line = decided;
    line.source = source_of(decided_word, reason);
    lines.push_back(std::move(line));
  }
  for (const lookup_record& line : lines) take(line);
  return folder_.empty() ? status{} : append_records(path_of(key.family), lines);
}

}  // namespace tessera::tuner
