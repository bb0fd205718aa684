// From what a build must serve (models, traces, lookup tables) to the rows it gets. Nothing here
// depends on a family.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "table.hpp"

namespace tessera::generate {

/// Files that say what a build must serve. The same file twice counts once.
struct demand_files {
  std::vector<std::filesystem::path> models;   ///< model descriptions (Hugging Face config.json)
  std::vector<std::filesystem::path> traces;   ///< recorded problems, one a line
  std::vector<std::filesystem::path> lookups;  ///< lookup tables

  bool empty() const noexcept { return models.empty() && traces.empty() && lookups.empty(); }
};

/// Why a row is in the table: "llama-3.1-8b prefill, full", "trace.txt:12".
using row_reasons = std::map<std::string, std::set<std::string>, std::less<>>;

/// The rows of a build, one table per family in the order of `families`, and who asked for each.
struct demanded_rows {
  std::vector<table> tables;
  row_reasons reasons;  ///< by row name
};

/// For every problem that the models and traces ask, the row of each backend of `targets` that
/// would run it fastest (`family::row_for`), and the rows of these backends that the lookup tables
/// name for problems of the same identity. Lookup tables alone ask for every row that they name.
/// Refuses unreadable files and malformed lines with file and line, and problems that no backend of
/// `targets` has a row for.
outcome<demanded_rows> rows_for(const demand_files& files, const std::set<backend>& targets,
                                const std::vector<family>& families);

/// A line of a lookup table, without its line break, and the back end of its row.
struct embedded_line {
  std::string text;
  backend target = backend::cpu_generic;
};

/// The lines of the lookup tables that name a row of `tables`, in their order.
outcome<std::vector<embedded_line>> embedded_lookup(
    const std::vector<std::filesystem::path>& lookups, const std::vector<table>& tables);

}  // namespace tessera::generate
