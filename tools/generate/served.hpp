// The header of a build: its rows as compile-time data, for `my_kernels::serves(problem)`; and the
// unit with its lookup table.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "demand.hpp"
#include "units.hpp"

namespace tessera::generate {

/// `include/tessera/builds/<name>.hpp` for the rows of each family; see spec/served.hpp. `reasons`
/// become comments. Characters of `name` that no identifier has become '_' in its namespace.
file_set served_header(std::string_view name, const std::vector<family>& families,
                       const std::vector<table>& tables, const row_reasons& reasons);

/// `units/lookup.cpp`: the table inside the library. A build that lacks a line's row for want of
/// its back end lacks the line.
file_set lookup_unit(const std::vector<embedded_line>& lines);

}  // namespace tessera::generate
