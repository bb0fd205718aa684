// What tables and traces do with files: descriptors that close themselves, text that is written
// whole, failures in the system's words. Needs nothing else of impl/.
#pragma once

#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <unistd.h>

#include <tessera/spec/sentence.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::files {

/// What the system says about the call that just failed.
[[gnu::cold]] inline std::string system_reason() {
  return std::error_code(errno, std::system_category()).message();
}

/// The failure of the system call just made: "PATH: cannot be written: No space left on device".
[[gnu::cold]] inline status system_failure(const std::string& path, std::string_view what) {
  const std::string reason = system_reason();
  return refusal(status_code::io, {path, ": ", what, ": ", reason});
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

/// Writes a text in as few writes as the system needs, one for any usual length.
[[gnu::cold]] inline status write_all(int file, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_failure(path, "cannot be written");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

}  // namespace tessera::files
