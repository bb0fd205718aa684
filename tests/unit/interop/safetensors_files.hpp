// Safetensors files made by hand, right and wrong, for the tests of the reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/interop/safetensors.hpp>

namespace tessera::test {

using bytes = std::vector<std::byte>;

/// 8 bytes of length, the header as it is, and `data_bytes` bytes 0, 1, 2, ...
inline bytes file_with_length(std::uint64_t length, std::string_view header,
                              std::size_t data_bytes) {
  bytes file(8 + header.size() + data_bytes);
  for (std::size_t byte = 0; byte < 8; ++byte) {
    file[byte] = static_cast<std::byte>(length >> (8 * byte) & 0xff);
  }
  if (!header.empty()) std::memcpy(file.data() + 8, header.data(), header.size());
  for (std::size_t at = 0; at < data_bytes; ++at) {
    file[8 + header.size() + at] = static_cast<std::byte>(at & 0xff);
  }
  return file;
}

inline bytes file_of(std::string_view header, std::size_t data_bytes) {
  return file_with_length(header.size(), header, data_bytes);
}

/// The reader's sentence about a file, or "" if it takes it.
inline std::string refusal_of(std::string_view header, std::size_t data_bytes) {
  const bytes file = file_of(header, data_bytes);
  const auto read = safetensors_file::parse(file, "f");
  return read ? std::string() : read.message();
}

}  // namespace tessera::test
