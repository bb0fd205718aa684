// Names of rows and files as GoogleTest takes them.
#pragma once

#include <ostream>
#include <string>
#include <string_view>

#include <tessera/spec/instance.hpp>

namespace tessera {

/// How GoogleTest prints a row.
inline void PrintTo(const instance& row, std::ostream* stream) {
  *stream << row.name;
}

}  // namespace tessera

namespace tessera::support {

/// A row's name as GoogleTest accepts it in the name of a test.
inline std::string test_name(std::string_view name) {
  std::string text(name);
  for (char& letter : text) {
    const bool plain = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z');
    if (!plain) letter = '_';
  }
  return text;
}

}  // namespace tessera::support
