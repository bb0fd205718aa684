// What rows cost to compile, as measured by tools/measure-cost, and what to expect of others.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "table.hpp"

namespace tessera::generate {

/// Cost of one row.
struct row_cost {
  double seconds = 0;      ///< of one core
  double mebibytes = 0;    ///< peak memory of the compiler
  std::int64_t bytes = 0;  ///< code and constants
  int registers = 0;       ///< CUDA rows: of a thread, the most over kernels and architectures
  int local_bytes = 0;     ///< likewise: stack and spilled registers of a thread
  bool measured = false;
};

/// The measured rows of one family.
class cost_file {
 public:
  /// Reads lines `row seconds mebibytes bytes [registers local_bytes]`; a missing file is an empty
  /// one.
  static outcome<cost_file> read(const std::filesystem::path& path);

  /// The row's own cost, else the mean over measured rows of its backend, else over all rows,
  /// else a guess.
  row_cost of(const row& row) const;

 private:
  std::map<std::string, row_cost, std::less<>> measured_;
};

}  // namespace tessera::generate
