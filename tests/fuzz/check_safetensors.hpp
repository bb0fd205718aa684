// What must hold for any bytes given to the safetensors reader; shared by the fuzz target and the
// mutation program. Returns a sentence where something does not hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <tessera/interop/safetensors.hpp>

namespace tessera::fuzz {

/// Reads every byte the views promise (a sanitizer sees one too many) and gives their sum.
inline std::uint64_t touch(const safetensors_file& file) {
  std::uint64_t sum = 0;
  for (const safetensors_entry& entry : file.entries()) {
    const auto* data = static_cast<const unsigned char*>(entry.tensor.data);
    const auto bytes =
        static_cast<std::size_t>(entry.tensor.elements()) * size_of(entry.tensor.type);
    for (std::size_t at = 0; at < bytes; ++at) sum += data[at];
  }
  return sum;
}

/// A file that was read can be written, and what was written is the same.
inline std::string check_round_trip(const safetensors_file& file) {
  const auto written = safetensors_bytes(file.entries(), file.metadata());
  if (!written) return "read, but not written: " + written.message();
  const auto again = safetensors_file::parse(*written);
  if (!again) return "written, but not read: " + again.message();
  if (again->metadata() != file.metadata()) return "metadata changed";
  if (again->entries().size() != file.entries().size()) return "number of tensors changed";
  for (const safetensors_entry& entry : file.entries()) {
    const safetensors_entry* same = again->find(entry.name);
    if (same == nullptr || same->boolean != entry.boolean ||
        !(same->tensor.shape() == entry.tensor.shape())) {
      return "tensor " + entry.name + " changed";
    }
    const auto bytes =
        static_cast<std::size_t>(entry.tensor.elements()) * size_of(entry.tensor.type);
    if (bytes > 0 && std::memcmp(same->tensor.data, entry.tensor.data, bytes) != 0) {
      return "data of tensor " + entry.name + " changed";
    }
  }
  return {};
}

/// "" if the reader takes the bytes and they come back, or refuses them with a sentence.
inline std::string check(std::span<const std::byte> bytes, bool& taken) {
  const auto file = safetensors_file::parse(bytes, "input");
  taken = static_cast<bool>(file);
  if (!file) {
    const std::string& message = file.message();
    if (message.rfind("input: ", 0) != 0 || message.size() > 1000) {
      return "a refusal without or with too many words: " + message.substr(0, 200);
    }
    return {};
  }
  for (const safetensors_entry& entry : file->entries()) {
    const auto address = reinterpret_cast<std::uintptr_t>(entry.tensor.data);
    if (address % size_of(entry.tensor.type) != 0) return "tensor " + entry.name + " is misaligned";
  }
  volatile std::uint64_t sum = touch(*file);
  (void)sum;
  return check_round_trip(*file);
}

}  // namespace tessera::fuzz
