#include "cost.hpp"

#include <fstream>
#include <sstream>

#include <fmt/format.h>

namespace tessera::generate {
namespace {

/// What a row costs before anything was measured: the order of magnitude of a CPU row.
constexpr row_cost guess{.seconds = 4, .mebibytes = 400, .bytes = 40'000, .measured = false};

}  // namespace

outcome<cost_file> cost_file::read(const std::filesystem::path& path) {
  cost_file file;
  std::ifstream stream(path);
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    if (line.empty() || line.front() == '#') continue;
    std::istringstream fields(line);
    std::string name;
    std::string rest;
    row_cost cost{.measured = true};
    bool complete{fields >> name >> cost.seconds >> cost.mebibytes >> cost.bytes};
    if (complete && !(fields >> std::ws).eof()) {
      complete = static_cast<bool>(fields >> cost.registers >> cost.local_bytes);
    }
    if (!complete || (fields >> rest)) {
      return refusal{fmt::format(
          "{}:{}: expected 'row seconds mebibytes bytes [registers local_bytes]', found '{}'",
          path.string(), number, line)};
    }
    file.measured_[name] = cost;
  }
  return file;
}

row_cost cost_file::of(const row& row) const {
  if (const auto found = measured_.find(row.name); found != measured_.end()) return found->second;
  const std::string same_backend = fmt::format(".{}.", name_of(row.target));
  for (const std::string& part : {same_backend, std::string()}) {
    row_cost sum;
    int count = 0;
    for (const auto& [name, cost] : measured_) {
      if (name.find(part) == std::string::npos) continue;
      sum.seconds += cost.seconds;
      sum.mebibytes += cost.mebibytes;
      sum.bytes += cost.bytes;
      ++count;
    }
    if (count > 0) {
      return {.seconds = sum.seconds / count,
              .mebibytes = sum.mebibytes / count,
              .bytes = sum.bytes / count,
              .measured = false};
    }
  }
  return guess;
}

}  // namespace tessera::generate
