// Row lists: text files with one row name per line.
#pragma once

#include <filesystem>
#include <vector>

#include "table.hpp"

namespace tessera::generate {

/// Reads row lists. A line holds one row name; '#' starts a comment; a name may come more than
/// once. A name of no family, an illegal row or an unreadable file is refused with the file, the
/// line and the nearest rows of the default tables. The result holds one table per family, in the
/// order of `families`; only its rows are set.
outcome<std::vector<table>> read_row_lists(const std::vector<std::filesystem::path>& paths,
                                           const std::vector<family>& families);

}  // namespace tessera::generate
