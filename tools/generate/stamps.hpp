// Whether the lines of the lookup tables inside the library were measured with the kernels of these
// sources: the library takes no answer from lines of other kernels, they are hints for tuning.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "code_version.hpp"
#include "table.hpp"

namespace tessera::generate {

/// The digests of every family's sources, by its name.
using versions_by_family = std::map<std::string_view, code_versions>;

outcome<versions_by_family> versions_of_all(const std::filesystem::path& include,
                                            const std::vector<family>& families);

/// What becomes of lines that name another digest than that of the sources of their row.
enum class stamp_action {
  tell,   ///< they stay
  renew,  ///< they get the digest, in their file: for changes that leave the rows as fast as before
};

/// Looks through the lookup tables. A sentence for each that has (had) such lines; empty if none
/// has. Lines of rows that `tables` do not have are passed over.
outcome<std::string> check_stamps(const std::vector<std::filesystem::path>& lookups,
                                  const std::vector<table>& tables,
                                  const versions_by_family& versions, stamp_action action);

}  // namespace tessera::generate
