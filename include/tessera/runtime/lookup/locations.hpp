// Where lookup tables lie: user, site, shipped. Nothing is opened or made here.
//
//   user     $TESSERA_TABLE_DIR/lookup.txt, else $XDG_CACHE_HOME/tessera/lookup.txt, else
//            $HOME/.cache/tessera/lookup.txt, else none; tools write it
//   site     tessera/lookup.txt in each directory of $XDG_DATA_DIRS, by default
//            /usr/local/share and /usr/share; read only
//   shipped  inside the library (shipped.hpp)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Whose table a record came from.
enum class lookup_layer : std::uint8_t { user, site, shipped };

constexpr std::string_view name_of(lookup_layer layer) noexcept {
  switch (layer) {
    case lookup_layer::user:
      return "user";
    case lookup_layer::site:
      return "site";
    case lookup_layer::shipped:
      return "shipped";
  }
  return "invalid";
}

/// Name of a table in its directory.
inline constexpr std::string_view table_file_name = "lookup.txt";

/// Absolute paths of files that may or may not exist.
struct table_locations {
  std::string user;               ///< empty: the user has no place for one
  std::vector<std::string> site;  ///< the first has precedence
  bool shipped = true;            ///< false: the table inside the library is not looked at
};

/// The places that a process with these variables has. `table_directory` is the value of
/// TESSERA_TABLE_DIR; a relative one is the user's word and counts from the working directory of
/// this moment. Relative values of the others count as unset, as their specification demands.
table_locations locate_tables(std::string_view table_directory,
                              const char* (*variable)(const char* name));

/// The same from the environment of the process, read anew at each call.
table_locations process_table_locations();

}  // namespace tessera
