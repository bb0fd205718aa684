// The environment variables the library looks at: read once, at first use, in one place. What a
// call says wins over all of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <tessera/runtime/overlay.hpp>
#include <tessera/spec/backend.hpp>

namespace tessera {

/// A row asked for by name: TESSERA_ROW=<op>=<row>[,<op>=<row>...].
struct row_request {
  std::string op;
  std::string row;
};

/// Values after parsing. A value that cannot be read counts as unset and leaves a warning.
struct environment {
  int explain = 0;                    ///< TESSERA_EXPLAIN: 0 to 3; choices are told on stderr
  std::optional<backend> cpu;         ///< TESSERA_CPU: no row above this instruction set
  std::vector<row_request> rows;      ///< TESSERA_ROW
  std::optional<overlay> rules;       ///< TESSERA_OVERLAY: rules, or the name of a file of rules
  std::string table_directory;        ///< TESSERA_TABLE_DIR: where the user's lookup table lies
  std::string record_file;            ///< TESSERA_RECORD: where problems are recorded
  int threads = 0;                    ///< OMP_NUM_THREADS; 0: unset
  std::vector<std::string> warnings;  ///< one sentence each, naming the valid values
};

/// Parses the variables that `lookup` returns; null means unset.
environment read_environment(const char* (*lookup)(const char* name));

/// The environment of the process, read at the first call. Its warnings are delivered once, as
/// events, with the first selection that has a sink.
const environment& process_environment();

}  // namespace tessera
