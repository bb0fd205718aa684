// Names of rows and files as GoogleTest takes them.
#pragma once

#include <string>
#include <string_view>

namespace tessera::support {

/// A row's name as GoogleTest accepts it in the name of a test.
inline std::string test_name(std::string_view name) {
  std::string text(name);
  for (char& one : text) {
    const bool plain = (one >= '0' && one <= '9') || (one >= 'a' && one <= 'z');
    if (!plain) one = '_';
  }
  return text;
}

}  // namespace tessera::support
