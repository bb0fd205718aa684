// From rows to files: which rows share a translation unit, and the text of everything generated.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cost.hpp"
#include "table.hpp"

namespace tessera::generate {

/// The rows that one translation unit instantiates: same backend, same `row::unit`.
struct unit {
  std::string path;  ///< relative to the output folder
  backend target = backend::cpu_generic;
  std::vector<row> rows;
};

/// Sorts rows into units. A unit depends on its own rows only: adding a row changes one of them.
std::vector<unit> units_of(const family& family, const std::vector<row>& rows);

/// Generated files: path relative to the output folder -> text.
using file_set = std::map<std::string, std::string>;

/// By device_part, the digest of the sources that its units include; empty where there are none.
using code_versions = std::array<std::string, device_parts.size()>;

/// The list of rows, the units and the registry of one family.
file_set files_of(const family& family, const std::vector<row>& rows,
                  const std::vector<unit>& units, const cost_file& costs,
                  const code_versions& versions);

/// What all families share: the runtime unit and the list of units for CMake.
file_set common_files(const std::vector<std::pair<family, std::vector<unit>>>& families);

/// What builds with rows of the back end define; empty where every build has them.
std::string_view macro_of(backend target) noexcept;

/// First line of every generated file; nothing without it is ever overwritten or removed.
extern const std::string_view banner_start;

}  // namespace tessera::generate
