// Writing lookup tables, with the files as the store changes them: locked, written whole,
// synchronised. Compiled into the library tessera::store, never into the core.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tessera/lookup/impl/descriptor.hpp>
#include <tessera/lookup/store.hpp>
#include <tessera/lookup/table.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

namespace lookup_form {

using files::descriptor;
using files::system_failure;
using files::write_all;

inline std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

inline status synchronise(int file, const std::string& path) {
  while (::fsync(file) != 0) {
    if (errno != EINTR) return system_failure(path, "cannot be written to the disk");
  }
  return {};
}

/// Makes entries of a directory (new, renamed) survive a loss of power. File systems that cannot
/// synchronise a directory say EINVAL and need no more.
inline status synchronise_directory(const std::string& path) {
  const descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return system_failure(path, "cannot be opened");
  while (::fsync(directory.number()) != 0) {
    if (errno == EINVAL || errno == EROFS) return {};
    if (errno != EINTR) return system_failure(path, "cannot be written to the disk");
  }
  return {};
}

/// Makes a directory and those above it, for the user only, as caches are.
inline status make_directories(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0) return synchronise_directory(parent_of(path));
  if (errno == EEXIST) return {};
  if (errno != ENOENT || parent_of(path) == path) return system_failure(path, "cannot be made");
  if (status above = make_directories(parent_of(path)); !above) return above;
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return system_failure(path, "cannot be made");
  }
  return synchronise_directory(parent_of(path));
}

/// A file open for reading and appending, locked if its file system has locks.
struct locked_file {
  descriptor file;
  bool locked = false;
  std::int64_t size = 0;
  mode_t mode = 0644;
};

/// Waits for the lock. False where there are none.
inline bool lock(int file) noexcept {
  while (::flock(file, LOCK_EX) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

enum class if_absent { fail, make };

/// Opens and locks the file that has this path when the lock is got: a file that was replaced
/// while this one waited is not the one to write to.
inline result<locked_file> open_locked(const std::string& path, if_absent absent) {
  const int making = absent == if_absent::make ? O_CREAT : 0;
  while (true) {
    locked_file opened;
    opened.file = descriptor(::open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC | making, 0644));
    if (!opened.file) return system_failure(path, "cannot be opened for writing");
    opened.locked = lock(opened.file.number());
    struct stat mine {};
    struct stat named {};
    if (::fstat(opened.file.number(), &mine) != 0) return system_failure(path, "cannot be read");
    if (!S_ISREG(mine.st_mode)) {
      return refusal(status_code::io, {path, ": is not a regular file"});
    }
    if (::stat(path.c_str(), &named) != 0) {
      if (errno != ENOENT) return system_failure(path, "cannot be read");
      continue;
    }
    if (mine.st_dev != named.st_dev || mine.st_ino != named.st_ino) continue;
    opened.size = mine.st_size;
    opened.mode = mine.st_mode & 0777;
    return opened;
  }
}

/// Puts a file back to the size it had, an empty one to nothing. Without a lock other writers may
/// have written behind us, so nothing is taken away.
inline void undo_append(const locked_file& opened, const std::string& path) noexcept {
  if (!opened.locked) return;
  if (opened.size == 0) {
    ::unlink(path.c_str());
  } else {
    static_cast<void>(::ftruncate(opened.file.number(), opened.size) == 0);
  }
}

/// The path behind symbolic links, which a rename would replace; the path itself where it is none.
inline std::string resolved(const std::string& path) {
  char* const real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr) return path;
  std::string text(real);
  std::free(real);
  return text;
}

inline std::string lines_of(std::span<const lookup_record> records) {
  std::string text;
  for (const lookup_record& record : records) text += line_of(record) += '\n';
  return text;
}

/// What must come between the end of the file and a new line.
inline result<std::string> before_first_line(const locked_file& opened, const std::string& path) {
  if (opened.size == 0) return std::string(table_heading) + "\n";
  char last = 0;
  const ssize_t got = ::pread(opened.file.number(), &last, 1, opened.size - 1);
  if (got < 0) return system_failure(path, "cannot be read");
  return std::string(got == 1 && last == '\n' ? "" : "\n");
}

inline status append_text_to(const locked_file& opened, const std::string& path,
                             const std::string& lines) {
  auto before = before_first_line(opened, path);
  if (!before) return before.failure();
  const int file = opened.file.number();
  // One write, so that without locks lines of several writers do not mix where the file system
  // appends as a whole.
  if (status done = write_all(file, *before + lines, path); !done) return done;
  if (status done = synchronise(file, path); !done) return done;
  return synchronise_directory(parent_of(path));
}

inline result<std::string> content_of(const locked_file& opened, const std::string& path) {
  std::string text(static_cast<std::size_t>(opened.size), '\0');
  std::size_t used = 0;
  while (used < text.size()) {
    const ssize_t got = ::pread(opened.file.number(), text.data() + used, text.size() - used,
                                static_cast<off_t>(used));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_failure(path, "cannot be read");
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
  }
  text.resize(used);
  return text;
}

inline status refuse_newer(const std::string& path, std::int64_t lines, std::int64_t newer,
                           int newest) {
  if (newer == 0) return {};
  return refusal(
      status_code::malformed,
      {path, ": ", newer, " of ", lines, newer == 1 ? " lines has schema " : " lines have schema ",
       newest, ", this version reads up to ", lookup_schema, "; nothing was changed"});
}

/// A new file with this text, on the disk when it returns. Nothing remains of a failure.
inline status write_new_file(const std::string& path, std::string_view text, mode_t mode,
                             int flags) {
  const descriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | flags, mode));
  if (!file) return system_failure(path, "cannot be made");
  status done = write_all(file.number(), text, path);
  if (done && ::fchmod(file.number(), mode) != 0) done = system_failure(path, "cannot be made");
  if (done) done = synchronise(file.number(), path);
  if (!done) ::unlink(path.c_str());
  return done;
}

/// Keeps a damaged file beside the table: PATH.bad, or the first of PATH.bad.2, ... that is free.
inline result<std::string> keep_damaged(const std::string& path, std::string_view text,
                                        mode_t mode) {
  std::string copy = path + ".bad";
  struct stat taken {};
  for (int number = 2; ::lstat(copy.c_str(), &taken) == 0; ++number) {
    copy = path + ".bad." + std::to_string(number);
  }
  if (status done = write_new_file(copy, text, mode, O_EXCL); !done) return done;
  return copy;
}

/// Puts a text in the place of the file, under its lock.
inline status replace_file(const locked_file& opened, const std::string& path,
                           const std::string& text) {
  const std::string aside = path + ".new";
  if (status done = write_new_file(aside, text, opened.mode, O_TRUNC); !done) return done;
  if (::rename(aside.c_str(), path.c_str()) != 0) {
    status failed = system_failure(path, "cannot be replaced");
    ::unlink(aside.c_str());
    return failed;
  }
  return synchronise_directory(parent_of(path));
}

/// The records of several files, each already without superseded lines: of the same key and
/// versions the newest measurement comes last, where lookup_table takes it.
inline lookup_table joined(std::vector<lookup_record> records) {
  std::stable_sort(records.begin(), records.end(),
                   [](const lookup_record& a, const lookup_record& b) { return a.date < b.date; });
  return lookup_table(std::move(records));
}

inline void add_all(const lookup_table& table, std::vector<lookup_record>& records) {
  records.insert(records.end(), table.records().begin(), table.records().end());
}

/// Reads the open file, joins it with `others` and replaces it.
inline result<table_rewrite> rewrite(const locked_file& opened, const std::string& path,
                                     std::vector<lookup_record> others) {
  if (!opened.locked) {
    return refusal(status_code::io,
                   {path, ": cannot be locked, and replacing it could lose rows that another ",
                    "program appends"});
  }
  auto old = content_of(opened, path);
  if (!old) return old.failure();
  lookup_text content = parse_table(*old);
  if (status newer = refuse_newer(path, content.lines, content.newer, content.newest_schema);
      !newer) {
    return newer;
  }
  table_rewrite report;
  report.rows_before = static_cast<std::int64_t>(content.records.size());
  report.damaged = content.damaged;
  report.bytes_before = opened.size;
  std::vector<lookup_record> records;
  add_all(lookup_table(std::move(content.records)), records);
  std::move(others.begin(), others.end(), std::back_inserter(records));
  const lookup_table table = joined(std::move(records));
  const std::string text = std::string(table_heading) + "\n" + lines_of(table.records());
  report.rows_after = static_cast<std::int64_t>(table.records().size());
  report.bytes_after = static_cast<std::int64_t>(text.size());
  if (report.damaged > 0) {
    auto copy = keep_damaged(path, *old, opened.mode);
    if (!copy) return copy.failure();
    report.quarantine = *copy;
  }
  if (status done = replace_file(opened, path, text); !done) {
    if (!report.quarantine.empty()) ::unlink(report.quarantine.c_str());
    return done;
  }
  return report;
}

/// Adds the records of an input of a merge.
inline status add_input(const std::string& path, std::vector<lookup_record>& records,
                        table_rewrite& report) {
  const lookup_table table = read_tables({&path, 1});
  const lookup_file_state& file = table.files().front();
  if (file.condition == lookup_file_condition::absent) {
    return refusal(status_code::io, {path, ": there is no such file"});
  }
  if (file.condition == lookup_file_condition::unreadable) {
    return refusal(status_code::io, {path, ": cannot be read: ", file.problem});
  }
  const std::int64_t lines = file.rows + file.damaged + file.newer;
  if (status newer = refuse_newer(path, lines, file.newer, file.newest_schema); !newer) {
    return newer;
  }
  report.rows_before += file.rows;
  report.damaged += file.damaged;
  add_all(table, records);
  return {};
}

}  // namespace lookup_form

status append_records(const std::string& path, std::span<const lookup_record> records) {
  using namespace lookup_form;
  for (std::size_t at = 0; at < records.size(); ++at) {
    const std::string fault = fault_of(records[at]);
    if (fault.empty()) continue;
    return refusal(status_code::invalid_argument, {path, ": record ", at + 1, " of ",
                                                   records.size(), " cannot be stored: ", fault});
  }
  if (records.empty()) return {};
  if (status done = make_directories(parent_of(path)); !done) return done;
  auto opened = open_locked(path, if_absent::make);
  if (!opened) return opened.failure();
  status done = append_text_to(*opened, path, lines_of(records));
  if (!done) undo_append(*opened, path);
  return done;
}

result<table_rewrite> compact_table(const std::string& path) {
  using namespace lookup_form;
  const std::string real = resolved(path);
  auto opened = open_locked(real, if_absent::fail);
  if (!opened) return opened.failure();
  return rewrite(*opened, real, {});
}

result<table_rewrite> merge_tables(std::span<const std::string> inputs, const std::string& output) {
  using namespace lookup_form;
  const std::string real = resolved(output);
  std::vector<lookup_record> records;
  table_rewrite read;
  for (const std::string& path : inputs) {
    if (resolved(path) == real) continue;
    if (status done = add_input(path, records, read); !done) return done;
  }
  if (status done = make_directories(parent_of(real)); !done) return done;
  auto opened = open_locked(real, if_absent::make);
  if (!opened) return opened.failure();
  auto report = rewrite(*opened, real, std::move(records));
  if (!report) {
    if (opened->size == 0) undo_append(*opened, real);
    return report;
  }
  report->rows_before += read.rows_before;
  report->damaged += read.damaged;
  return report;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text.data(), length};
}

}  // namespace tessera
