#include "row_list.hpp"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace tessera::generate {
namespace {

constexpr std::string_view blanks = " \t\r";

std::string_view trimmed(std::string_view line) {
  line = line.substr(0, line.find('#'));
  const std::size_t begin = line.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return line.substr(begin, line.find_last_not_of(blanks) - begin + 1);
}

/// Levenshtein distance.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> above(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(above[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = above[j + 1];
      above[j + 1] = std::min({changed, above[j] + 1, above[j + 1] + 1});
    }
  }
  return above.back();
}

std::string nearest(std::string_view name, const std::vector<family>& families) {
  std::vector<std::pair<std::size_t, std::string>> candidates;
  for (const family& family : families) {
    const auto defaults = family.default_table();
    if (!std::holds_alternative<table>(defaults)) continue;
    for (const row& known : std::get<table>(defaults).rows) {
      candidates.emplace_back(distance(name, known.name), known.name);
    }
  }
  std::ranges::sort(candidates);
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, candidates.size()); ++i) {
    text += fmt::format("\n  {}", candidates[i].second);
  }
  return text;
}

/// Adds the row to its family's table, or says why it cannot.
outcome<std::size_t> add(std::string_view name, const std::vector<family>& families,
                         std::vector<table>& tables) {
  for (std::size_t index = 0; index < families.size(); ++index) {
    if (!name.starts_with(fmt::format("{}.", families[index].name))) continue;
    auto listed = families[index].row_named(name);
    if (std::holds_alternative<refusal>(listed)) return std::get<refusal>(listed);
    tables[index].rows.push_back(std::get<row>(std::move(listed)));
    return index;
  }
  return refusal{"belongs to no family of rows"};
}

}  // namespace

outcome<std::vector<table>> read_row_lists(const std::vector<std::filesystem::path>& paths,
                                           const std::vector<family>& families) {
  std::vector<table> tables(families.size());
  for (const auto& path : paths) {
    std::ifstream stream(path);
    if (!stream || std::filesystem::is_directory(path)) {
      return refusal{fmt::format("{}: cannot read the row list", path.string())};
    }
    std::string line;
    for (int number = 1; std::getline(stream, line); ++number) {
      const std::string_view name = trimmed(line);
      if (name.empty()) continue;
      const auto added = add(name, families, tables);
      if (const auto* why = std::get_if<refusal>(&added)) {
        return refusal{fmt::format("{}:{}: '{}' {}; the nearest rows of the default table are:{}",
                                   path.string(), number, name, why->message,
                                   nearest(name, families))};
      }
    }
  }
  for (table& table : tables) {
    std::ranges::sort(table.rows, {}, &row::name);
    const auto repeated = std::ranges::unique(table.rows);
    table.rows.erase(repeated.begin(), repeated.end());
  }
  return tables;
}

}  // namespace tessera::generate
