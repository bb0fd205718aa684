// Safetensors files: read by mapping them, written in one step. Link `tessera::interop`; the
// definitions are in impl/, compiled once.
//
// A file is 8 bytes of header length (little endian), a JSON header, and the tensors' bytes. What
// the format demands is checked before any tensor can be seen; every refusal is a sentence with the
// file, the tensor, the fact and both numbers.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// The texts of the header's `__metadata__`.
using safetensors_metadata = std::map<std::string, std::string, std::less<>>;

/// A tensor under the name it has in a file. Types as in the file: F32, F16, BF16, F64, I64, I32,
/// U32, U8, I8, F8_E4M3, F8_E5M2, and BOOL, which is u8 with `boolean` set. Rank 0 to 5.
struct safetensors_entry {
  std::string name;
  tensor_view tensor{};
  bool boolean = false;
};

/// The longest header that is read or written, in bytes: the format's own limit.
inline constexpr std::size_t max_safetensors_header = 100'000'000;

/// An open file. The views it hands out are contiguous, read-only and valid until the object is
/// destroyed; moving it keeps them valid. Concurrent reads are safe.
class safetensors_file {
 public:
  /// Maps a regular file. It must not be shortened by somebody else while it is open: the system
  /// answers such an access with a signal.
  static result<safetensors_file> open(const std::filesystem::path& path);

  /// Reads from memory that outlives the object. `source` takes the file's place in messages.
  static result<safetensors_file> parse(std::span<const std::byte> bytes,
                                        std::string_view source = "safetensors data");

  /// The tensors in the order of their bytes. A tensor that does not lie at a multiple of its
  /// element size (which the format allows) has been copied to memory where it does.
  std::span<const safetensors_entry> entries() const noexcept { return entries_; }
  /// The entry of that name, or null.
  const safetensors_entry* find(std::string_view name) const noexcept;
  /// The tensor of that name, or null.
  const tensor_view* tensor(std::string_view name) const noexcept;
  /// The tensors' names, in the order of `entries`.
  std::vector<std::string_view> names() const;
  /// Empty if the file has none.
  const safetensors_metadata& metadata() const noexcept { return metadata_; }

 private:
  struct unmap {
    std::size_t bytes;
    void operator()(const std::byte* mapped) const noexcept;
  };
  struct free_aligned {
    void operator()(std::byte* block) const noexcept;
  };

  status read(std::span<const std::byte> bytes, std::string_view source);

  std::unique_ptr<const std::byte, unmap> mapping_{nullptr, unmap{0}};
  std::vector<std::unique_ptr<std::byte, free_aligned>> realigned_;
  std::vector<safetensors_entry> entries_;           // in the order of their bytes
  std::map<std::string_view, std::size_t> by_name_;  // keys point into entries_
  safetensors_metadata metadata_;
};

/// Writes a file that starts its data at a multiple of 64 bytes and every tensor at a multiple of
/// its element size. Tensors may have any strides and are stored row-major; they live on the CPU.
/// The file appears whole or not at all (a temporary file beside it is renamed), and replaces a
/// regular file of that name.
status write_safetensors(const std::filesystem::path& path,
                         std::span<const safetensors_entry> entries,
                         const safetensors_metadata& metadata = {});

/// The same bytes in memory.
result<std::vector<std::byte>> safetensors_bytes(std::span<const safetensors_entry> entries,
                                                 const safetensors_metadata& metadata = {});

}  // namespace tessera
