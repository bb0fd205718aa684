// Reads the files of a report, whatever each of them is.
#pragma once

#include <string>
#include <vector>

#include "model.hpp"

namespace tessera::tool::report {

/// Reads every file by what is in it. Refuses files that cannot be read, are of no known kind or
/// come twice.
input load(const std::vector<std::string>& paths);

/// The rows of this build, with what compiling them cost when the table was last costed.
void add_build_rows(input& to);

}  // namespace tessera::tool::report
