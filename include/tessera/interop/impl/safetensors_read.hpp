// Definitions of `safetensors_file`; compiled once.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tessera/interop/impl/safetensors_header.hpp>
#include <tessera/interop/safetensors.hpp>

namespace tessera {

namespace safetensors {

inline constexpr std::align_val_t block_alignment{64};

/// A file descriptor that closes itself.
class descriptor {
 public:
  explicit descriptor(int number) noexcept : number_(number) {}
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int number() const noexcept { return number_; }

 private:
  int number_;
};

/// The operating system's refusal: "FILE: cannot be opened (No such file or directory)".
inline status system_refusal(const std::filesystem::path& path, std::string_view fact, int number) {
  return {status_code::io, path.string().append(": ").append(fact).append(" (") +
                               std::generic_category().message(number) + ")"};
}

/// Checks one tensor against its own numbers.
inline status check_tensor(const header_tensor& tensor, std::uint64_t data_bytes,
                           std::string_view source) {
  const auto refuse = [&](const std::string& fact) {
    return status(status_code::malformed,
                  std::string(source) + ": tensor " + shown(tensor.name) + ": " + fact);
  };
  if (tensor.begin > tensor.end) {
    return refuse("data_offsets begin at " + std::to_string(tensor.begin) + ", past their end at " +
                  std::to_string(tensor.end));
  }
  if (tensor.end > data_bytes) {
    return refuse("data_offsets end at " + std::to_string(tensor.end) + ", the file has " +
                  std::to_string(data_bytes) + " bytes of data");
  }
  const auto rank = static_cast<std::size_t>(tensor.rank);
  const auto bytes = bytes_of(std::span(tensor.extent).first(rank), size_of(tensor.type.type));
  if (!bytes) return refuse("shape " + shape_text(tensor) + " is more than 2^63 - 1 bytes");
  if (*bytes != tensor.end - tensor.begin) {
    return refuse("shape " + shape_text(tensor) + " is " + std::to_string(*bytes) +
                  " bytes, data_offsets hold " + std::to_string(tensor.end - tensor.begin));
  }
  return {};
}

/// Checks that tensors sorted by offset cover the data without gap, overlap or rest.
inline status check_cover(const std::vector<header_tensor>& tensors, std::uint64_t data_bytes,
                          std::string_view source) {
  std::uint64_t covered = 0;
  for (const header_tensor& tensor : tensors) {
    if (tensor.begin != covered) {
      return {status_code::malformed,
              std::string(source) + ": tensor " + shown(tensor.name) + ": begins at byte " +
                  std::to_string(tensor.begin) + " of the data, what lies before it ends at " +
                  std::to_string(covered) + (tensor.begin < covered ? " (overlap)" : " (gap)")};
    }
    covered = tensor.end;
  }
  if (covered == data_bytes) return {};
  return {status_code::malformed, std::string(source) + ": the tensors end at byte " +
                                      std::to_string(covered) + " of the data, the file has " +
                                      std::to_string(data_bytes)};
}

/// The header's length, checked against the bytes there are.
inline result<std::size_t> header_length(std::span<const std::byte> bytes,
                                         std::string_view source) {
  const auto refuse = [&](const std::string& fact) {
    return status(status_code::malformed, std::string(source) + ": " + fact);
  };
  if (bytes.size() < 8) {
    return refuse("has " + std::to_string(bytes.size()) + " bytes, the header's length alone is 8");
  }
  std::uint64_t length = 0;
  for (std::size_t byte = 8; byte-- > 0;) {
    length = length << 8 | std::to_integer<std::uint64_t>(bytes[byte]);
  }
  if (length > max_safetensors_header) {
    return refuse("the header's length is " + std::to_string(length) + " bytes, the most is " +
                  std::to_string(max_safetensors_header));
  }
  if (length > bytes.size() - 8) {
    return refuse("the header's length is " + std::to_string(length) + " bytes, the file has " +
                  std::to_string(bytes.size() - 8) + " behind it");
  }
  return static_cast<std::size_t>(length);
}

}  // namespace safetensors

// One unit includes this file (see all.hpp), so the functions are not inline.
// NOLINTBEGIN(misc-definitions-in-headers)

void safetensors_file::unmap::operator()(const std::byte* mapped) const noexcept {
  ::munmap(const_cast<std::byte*>(mapped), bytes);
}

void safetensors_file::free_aligned::operator()(std::byte* block) const noexcept {
  ::operator delete(block, safetensors::block_alignment);
}

const safetensors_entry* safetensors_file::find(std::string_view name) const noexcept {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

const tensor_view* safetensors_file::tensor(std::string_view name) const noexcept {
  const safetensors_entry* entry = find(name);
  return entry == nullptr ? nullptr : &entry->tensor;
}

std::vector<std::string_view> safetensors_file::names() const {
  std::vector<std::string_view> list;
  list.reserve(entries_.size());
  for (const safetensors_entry& entry : entries_) list.emplace_back(entry.name);
  return list;
}

status safetensors_file::read(std::span<const std::byte> bytes, std::string_view source) {
  const auto length = safetensors::header_length(bytes, source);
  if (!length) return length.failure();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, *length);
  auto parsed = safetensors::parse_header(text, source);
  if (!parsed) return parsed.failure();

  const std::span<const std::byte> data = bytes.subspan(8 + *length);
  auto& tensors = parsed->tensors;
  for (const auto& tensor : tensors) {
    if (auto done = safetensors::check_tensor(tensor, data.size(), source); !done) return done;
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  if (auto done = safetensors::check_cover(tensors, data.size(), source); !done) return done;

  entries_.reserve(tensors.size());
  for (auto& tensor : tensors) {
    const std::span<const std::byte> own = data.subspan(tensor.begin, tensor.end - tensor.begin);
    const std::size_t element_bytes = size_of(tensor.type.type);
    const std::byte* first = own.data();
    if (reinterpret_cast<std::uintptr_t>(first) % element_bytes != 0) {
      std::unique_ptr<std::byte, free_aligned> copy(static_cast<std::byte*>(
          ::operator new(std::max<std::size_t>(own.size(), 1), safetensors::block_alignment)));
      if (!own.empty()) std::memcpy(copy.get(), first, own.size());
      first = realigned_.emplace_back(std::move(copy)).get();
    }
    tensor_view seen;
    seen.data = const_cast<std::byte*>(first);
    seen.type = tensor.type.type;
    seen.rank = static_cast<std::int8_t>(tensor.rank);
    seen.read_only = true;
    seen.extent = tensor.extent;
    seen.stride = contiguous_strides(seen.extent, seen.rank);
    entries_.push_back({std::move(tensor.name), seen, tensor.type.boolean});
  }
  for (std::size_t index = 0; index < entries_.size(); ++index) {
    by_name_.emplace(entries_[index].name, index);
  }
  metadata_ = std::move(parsed->metadata);
  return {};
}

result<safetensors_file> safetensors_file::parse(std::span<const std::byte> bytes,
                                                 std::string_view source) {
  safetensors_file file;
  if (auto done = file.read(bytes, source); !done) return done;
  return file;
}

result<safetensors_file> safetensors_file::open(const std::filesystem::path& path) {
  // Without O_NONBLOCK a pipe in the file's place would wait for a writer.
  const safetensors::descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number() < 0) {
    return safetensors::system_refusal(path, "cannot be opened for reading", errno);
  }
  struct stat facts {};
  if (::fstat(file.number(), &facts) != 0) {
    return safetensors::system_refusal(path, "cannot be examined", errno);
  }
  if (!S_ISREG(facts.st_mode)) {
    return status(status_code::io, path.string() + ": is not a regular file");
  }
  safetensors_file opened;
  const auto size = static_cast<std::size_t>(facts.st_size);
  std::span<const std::byte> bytes;
  if (size > 0) {  // a mapping of no bytes is an error of its own
    void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
    if (mapped == MAP_FAILED) return safetensors::system_refusal(path, "cannot be mapped", errno);
    opened.mapping_ = {static_cast<const std::byte*>(mapped), unmap{size}};
    bytes = {opened.mapping_.get(), size};
  }
  if (auto done = opened.read(bytes, path.string()); !done) return done;
  return opened;
}

// NOLINTEND(misc-definitions-in-headers)

}  // namespace tessera
