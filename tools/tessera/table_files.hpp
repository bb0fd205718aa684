// The lookup tables that `tessera table` looks at, and what their lines are worth to this build.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/lookup/table.hpp>

namespace tessera::tool {

/// One file, or the table inside the library.
struct opened_table {
  std::string layer;  ///< "user", "site", "shipped"; "file" where it was named
  lookup_table table;

  const lookup_file_state& file() const { return table.files().front(); }
};

/// The named files; without names, those of the places that the library looks at, absent ones
/// included. A named file that is not there or cannot be read ends the command.
std::vector<opened_table> open_tables(const std::vector<std::string>& paths);

/// The file's path; "inside the library" for the table that is part of it.
std::string place_of(const opened_table& table);
/// The same with the layer: "user table PATH"; of a named file only its path.
std::string title_of(const opened_table& table);

/// Every place that the library looks at, for messages.
std::string places_text();

/// The user's own table; ends the command if there is no place for one.
std::string user_table_path();

/// What a line is to this build.
enum class standing : std::uint8_t {
  answer,  ///< names a row of this build and was measured with its kernels
  hint,    ///< measured with other kernels: looked at when the problem is tuned, not when it is run
  no_row,  ///< names a row that this build lacks
  foreign,  ///< of a family that this build lacks
};

standing standing_of(const lookup_record& record);
std::string_view name_of(standing state) noexcept;

/// How many lines of each standing.
struct standing_counts {
  std::int64_t answers = 0;
  std::int64_t hints = 0;
  std::int64_t no_row = 0;
  std::int64_t foreign = 0;
};
standing_counts count_standings(const lookup_table& table);

/// default_us / median_us; 0 where the default was not measured.
double gain_of(const lookup_record& record);

}  // namespace tessera::tool
