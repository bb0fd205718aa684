// What `tessera doctor` finds wrong with a machine, a build or a set-up.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "table_files.hpp"

namespace tessera::tool {

/// Something that is not as it should be, and what helps.
struct finding {
  std::string fact;
  std::string remedy;
};

/// The value of an environment variable, if it is set.
std::optional<std::string> variable(const char* name);

/// Looks at instructions, threads, system, environment and tables. `lost_share` is the part of the
/// core time that other programs took while something was measured.
std::vector<finding> diagnose(int threads, double lost_share,
                              const std::vector<opened_table>& tables);

}  // namespace tessera::tool
