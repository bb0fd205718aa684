// Reads measured problems: what `tessera tune --json` prints, and lookup tables.
#pragma once

#include <string>
#include <string_view>

#include "model.hpp"

namespace tessera::tool::report {

/// True if the first line of a text is the head of tune results.
bool is_tune_result(std::string_view text);

/// Adds the problems of tune results to `to`. Every line is a JSON object; refusals name file,
/// line, field and value. Returns how many there were.
std::size_t read_tune_result(std::string_view text, const std::string& path, input& to);

/// True if a text begins as a lookup table does.
bool is_lookup_table(std::string_view text);

/// Adds the sound lines of a lookup table to `to.table`, those of a tuner's log, which has the same
/// form, to `to.problems`; damaged and newer lines are named in `from`. Returns how many sound
/// lines there were.
std::size_t read_lookup_table(std::string_view text, const std::string& path, input& to,
                              source& from);

/// Fills `to.problems`: one per key. Tune results win over table lines because they carry every
/// candidate, later files over earlier ones.
void gather_problems(input& to);

}  // namespace tessera::tool::report
