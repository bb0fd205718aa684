// Files as the store changes them: owned descriptors, locks, whole writes, synchronised
// directories.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tessera/spec/status.hpp>

namespace tessera::lookup_form {

/// The failure of the system call just made: "PATH: cannot be written: No space left on device".
inline status system_failure(const std::string& path, std::string_view what) {
  const std::error_code reason(errno, std::system_category());
  return {status_code::io, path + ": " + std::string(what) + ": " + reason.message()};
}

/// A descriptor that is closed with the object, which also gives back its locks.
class descriptor {
 public:
  descriptor() = default;
  explicit descriptor(int number) : number_(number) {}
  descriptor(descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int number() const noexcept { return number_; }
  explicit operator bool() const noexcept { return number_ >= 0; }

 private:
  int number_ = -1;
};

inline std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

inline status write_all(int file, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_failure(path, "cannot be written");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
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
      return status(status_code::io, path + ": is not a regular file");
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

}  // namespace tessera::lookup_form
