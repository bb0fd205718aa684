// Keys of problems, "name=value name=value", taken apart to lay problems out over sizes; and row
// names, shortened to what tells them apart.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::tool::report {

using named_values = std::vector<std::pair<std::string, std::string>>;

/// The pairs of a key text in its order; a word without '=' is a name with an empty value.
named_values values_of(std::string_view key);

/// Orders values as numbers where both are, numbers before other text.
struct by_size {
  bool operator()(const std::string& a, const std::string& b) const;
};

/// For each name what is left without the dot-separated parts that all of them begin and end with;
/// at least one part is left.
std::map<std::string, std::string> short_names(const std::vector<std::string>& names);

}  // namespace tessera::tool::report
