// Lookup tables in memory: immutable, built once, read by any number of threads; where their files
// lie. Questions neither allocate nor lock nor touch a file.
//
//   user     $TESSERA_TABLE_DIR/lookup.txt, else $XDG_CACHE_HOME/tessera/lookup.txt, else
//            $HOME/.cache/tessera/lookup.txt, else none; tools write it
//   site     tessera/lookup.txt in each directory of $XDG_DATA_DIRS, by default
//            /usr/local/share and /usr/share; read only
//   shipped  inside the library
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/lookup/record.hpp>
#include <tessera/spec/names.hpp>

namespace tessera {

/// Whose table a record came from.
enum class lookup_layer : std::uint8_t { user, site, shipped };

inline constexpr std::array<std::string_view, 3> lookup_layer_names{"user", "site", "shipped"};
constexpr std::string_view name_of(lookup_layer layer) noexcept {
  return name_in(lookup_layer_names, layer);
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

/// What became of one file.
enum class lookup_file_condition : std::uint8_t {
  absent,      ///< there is no such file
  read,        ///< its sound lines are in the table
  unreadable,  ///< it is there, but the system refuses it; see `problem`
};

inline constexpr std::array<std::string_view, 3> lookup_file_condition_names{"absent", "read",
                                                                             "unreadable"};
constexpr std::string_view name_of(lookup_file_condition condition) noexcept {
  return name_in(lookup_file_condition_names, condition);
}

/// The state of one file when it was read.
struct lookup_file_state {
  std::string path;  ///< "shipped" for the table inside the library
  lookup_file_condition condition = lookup_file_condition::absent;
  std::string problem;  ///< the system's words where unreadable
  std::int64_t bytes = 0;
  std::int64_t rows = 0;           ///< sound records of a schema that is understood
  std::int64_t superseded = 0;     ///< of these, replaced by a later line of this or a later file
  std::int64_t damaged = 0;        ///< lines that lost something
  std::int64_t newer = 0;          ///< sound lines of a newer schema, passed over
  int newest_schema = 0;           ///< highest schema of a sound line; 0: no line
  std::vector<line_fault> faults;  ///< the first damaged lines
};

/// The sentence about a file that is not as it should be ("PATH: 2 of 80 lines are damaged, first
/// line 17 ..."); empty for one that is.
std::string warning_of(const lookup_file_state& file);

/// The record closest to a question, and how far it is; null record: none within reach.
struct nearest_record {
  const lookup_record* record = nullptr;
  double log2_distance = 0;  ///< sum over the sizes of |log2(theirs / ours)|; 0: equal
  explicit operator bool() const noexcept { return record != nullptr; }
};

class lookup_table {
 public:
  lookup_table();
  /// Of records with the same key and versions the last one holds. Records with a fault are left
  /// out. Where there are files, the records lie one file after the other, `rows` of each.
  explicit lookup_table(std::vector<lookup_record> records,
                        std::vector<lookup_file_state> files = {});
  lookup_table(lookup_table&&) noexcept;
  lookup_table& operator=(lookup_table&&) noexcept;
  ~lookup_table();

  /// The record with this key. Where several code versions have one: that of `code_version`, else
  /// the one that came last, which the caller may use as a hint. Null if there is none. Lives as
  /// long as the table.
  const lookup_record* exact(std::string_view family, std::string_view device_class,
                             std::string_view identity, std::string_view size,
                             std::string_view code_version = {}) const noexcept;

  /// The record of the same family, device class and identity whose sizes have the same names and
  /// are closest, at most `max_log2_distance` away in sum. A size that is 0 is close to 0 only.
  /// With a `code_version`, records of other versions are not seen. Ties go to the smaller sizes.
  nearest_record nearest(std::string_view family, std::string_view device_class,
                         std::string_view identity, std::string_view size, double max_log2_distance,
                         std::string_view code_version = {}) const noexcept;

  /// Every record, sorted by family, device class, identity, sizes (as numbers), then age.
  std::span<const lookup_record> records() const noexcept;
  /// The files it was made from, in the order they were read.
  std::span<const lookup_file_state> files() const noexcept;
  bool empty() const noexcept { return records().empty(); }

 private:
  struct contents;
  std::unique_ptr<const contents> contents_;
};

/// Reads files, later ones win. A file that is absent, unreadable or damaged shows in files() and
/// is otherwise as if its lost lines were not there. Never fails, never writes.
lookup_table read_tables(std::span<const std::string> paths);

/// The table inside the library; without a file where there is none.
lookup_table read_shipped_table();

/// The layers, asked in this order.
struct lookup_tables {
  lookup_table user;
  lookup_table site;
  lookup_table shipped;
};

/// Reads every layer. Reads files: not for the path of a call; keep what it returns.
std::shared_ptr<const lookup_tables> load_lookup_tables(const table_locations& where);

/// Text of the table of this build, in the form of record.hpp: the lines of generated/lookup/*.txt,
/// or of the files given as LOOKUP, that name a row of the build. Empty where there is none.
/// Constant data: the call costs nothing.
std::string_view shipped_lookup() noexcept;

}  // namespace tessera
