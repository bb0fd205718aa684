// Writing lookup tables: for tools and the tuner, in a library of its own (tessera::store). The
// core library reads tables and never writes them.
//
// Writers append whole lines under an advisory lock (flock) and return when the lines are on the
// disk. Files are replaced as a whole: written aside, synchronised, renamed, directory
// synchronised, under the same lock. Whatever ends a writer, at any moment, the file holds every
// line whose append returned; at most one line that was being written is torn, and readers pass
// over it. Where a file system has no locks, appending goes on without and replacing is refused.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tessera/lookup/record.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Adds records to the end of a file; makes the file and its directories where they are missing.
/// After success the records survive a loss of power. After a failure the file is as it was.
/// Fails with `invalid_argument` if a record has a fault (nothing is touched then), with `io` and
/// the system's reason otherwise. O(number of records). No records: nothing happens. Lines of a
/// newer schema in the file are no obstacle.
status append_records(const std::string& path, std::span<const lookup_record> records);

/// What replacing a file did.
struct table_rewrite {
  std::int64_t rows_before = 0;   ///< sound lines of the files that were read
  std::int64_t rows_after = 0;    ///< lines written
  std::int64_t damaged = 0;       ///< lines of all files that were not sound
  std::int64_t bytes_before = 0;  ///< of the file that was replaced
  std::int64_t bytes_after = 0;
  std::string quarantine;  ///< copy of a damaged file that was replaced; empty: none was needed
};

/// Replaces a file by its valid lines, the last of each key and version, sorted. A file with
/// damaged lines is copied to PATH.bad (or .bad.2, ...) first. Refuses files with lines of a newer
/// schema. Any failure leaves the file as it was.
result<table_rewrite> compact_table(const std::string& path);

/// Joins files into `output`, which takes part if it exists; made if not. Of records with the same
/// key and versions the newest measurement holds, and of equally new ones that of the later file.
/// The inputs are not changed; their damaged lines are counted and left behind. Fails as
/// compact_table does, and if an input cannot be read or has lines of a newer schema.
result<table_rewrite> merge_tables(std::span<const std::string> inputs, const std::string& output);

/// Now, as `lookup_record::date` has it.
std::string utc_now();

}  // namespace tessera
