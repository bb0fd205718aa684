// Definitions of `write_safetensors` and `safetensors_bytes`; compiled once.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <numeric>

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tessera/interop/impl/safetensors_header.hpp>
#include <tessera/interop/impl/safetensors_read.hpp>
#include <tessera/interop/safetensors.hpp>

namespace tessera {

namespace safetensors {

/// Takes the bytes of a file, piece by piece.
using sink = std::function<status(std::span<const std::byte>)>;

/// The data begins at a multiple of this many bytes.
inline constexpr std::size_t data_alignment = 64;

/// Checks that `entry` can be stored and gives its bytes.
inline result<std::uint64_t> stored_bytes(const safetensors_entry& entry, std::string_view target) {
  const auto refuse = [&](const std::string& fact) {
    return status(status_code::invalid_argument,
                  std::string(target) + ": tensor " + shown(entry.name) + ": " + fact);
  };
  const tensor_view& tensor = entry.tensor;
  if (!tensor.present()) return refuse("is absent");
  if (tensor.rank < 0 || tensor.rank > max_rank) {
    return refuse("rank is " + std::to_string(tensor.rank) + ", it can be 0 to " +
                  std::to_string(max_rank));
  }
  if (tensor.device.kind != device_kind::cpu) return refuse("is not in the CPU's memory");
  if (entry.boolean && tensor.type != dtype::u8) {
    return refuse("boolean tensors are u8, it is " + std::string(name_of(tensor.type)));
  }
  const auto extent = std::span(tensor.extent).first(static_cast<std::size_t>(tensor.rank));
  for (const std::int64_t size : extent) {
    if (size < 0) return refuse("an extent is " + std::to_string(size) + ", the least is 0");
  }
  const auto bytes = bytes_of(extent, size_of(tensor.type));
  if (!bytes) return refuse("is more than 2^63 - 1 bytes");
  if (tensor.data == nullptr && *bytes > 0) {
    return refuse("data is null, it has " + std::to_string(*bytes) + " bytes");
  }
  return *bytes;
}

inline std::string json_text(std::string_view text) {
  return boost::json::serialize(boost::json::value(boost::json::string_view(text)));
}

/// Where everything goes: the header's text and the order of the tensors' bytes.
struct layout {
  std::string header;
  std::vector<std::size_t> order;
};

/// Larger elements first, so that with an aligned start every tensor is aligned without gaps.
inline result<layout> plan_file(std::span<const safetensors_entry> entries,
                                const safetensors_metadata& metadata, std::string_view target) {
  layout plan;
  plan.order.resize(entries.size());
  std::iota(plan.order.begin(), plan.order.end(), std::size_t{0});
  std::stable_sort(plan.order.begin(), plan.order.end(), [&](std::size_t a, std::size_t b) {
    return size_of(entries[a].tensor.type) > size_of(entries[b].tensor.type);
  });
  std::string& text = plan.header;
  text = '{';
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (text.back() != '{') text += ',';
      text.append(json_text(key)).append(":").append(json_text(value));
    }
    text += '}';
  }
  std::uint64_t begin = 0;
  for (const std::size_t index : plan.order) {
    const safetensors_entry& entry = entries[index];
    const auto bytes = stored_bytes(entry, target);
    if (!bytes) return bytes.failure();
    const auto type =
        std::find_if(file_types.begin(), file_types.end(), [&](const auto& type_of_file) {
          return type_of_file.type == entry.tensor.type && type_of_file.boolean == entry.boolean;
        });
    if (text.size() > 1) text += ',';
    text.append(json_text(entry.name)).append(":{\"dtype\":\"").append(type->name);
    text += "\",\"shape\":[";
    for (int axis = 0; axis < entry.tensor.rank; ++axis) {
      if (axis > 0) text += ',';
      text += std::to_string(entry.tensor.extent[static_cast<std::size_t>(axis)]);
    }
    const std::uint64_t end = begin + *bytes;
    text.append("],\"data_offsets\":[").append(std::to_string(begin)).append(",");
    text.append(std::to_string(end)).append("]}");
    begin = end;
  }
  text += '}';
  text.append((data_alignment - (8 + text.size()) % data_alignment) % data_alignment, ' ');
  if (text.size() > max_safetensors_header) {
    return status(status_code::invalid_argument,
                  std::string(target) + ": the header would be " + std::to_string(text.size()) +
                      " bytes, the most is " + std::to_string(max_safetensors_header));
  }
  // The reader's own checks hold for what is written: names twice, names that are not UTF-8.
  if (const auto checked = parse_header(text, target); !checked) {
    return status(status_code::invalid_argument, checked.message());
  }
  return plan;
}

/// Gives a tensor's elements to `out` in row-major order.
inline status store(const tensor_view& tensor, const sink& out) {
  const std::int64_t count = tensor.elements();
  if (count == 0) return {};
  const std::size_t element_bytes = size_of(tensor.type);
  const auto* base = static_cast<const std::byte*>(tensor.data);
  const auto total = static_cast<std::size_t>(count) * element_bytes;
  if (tensor.stride == contiguous_strides(tensor.extent, tensor.rank)) return out({base, total});

  std::vector<std::byte> buffer(std::min<std::size_t>(total, std::size_t{1} << 16));
  std::size_t filled = 0;
  std::array<std::int64_t, max_rank> index{};
  for (std::int64_t done = 0; done < count; ++done) {
    std::int64_t offset = 0;
    for (int axis = 0; axis < tensor.rank; ++axis) {
      const auto a = static_cast<std::size_t>(axis);
      offset += index[a] * tensor.stride[a];
    }
    std::memcpy(buffer.data() + filled, base + offset * static_cast<std::int64_t>(element_bytes),
                element_bytes);
    filled += element_bytes;
    if (filled == buffer.size() || done + 1 == count) {
      if (auto stored = out({buffer.data(), filled}); !stored) return stored;
      filled = 0;
    }
    for (int axis = tensor.rank - 1; axis >= 0; --axis) {  // the next index, last axis fastest
      const auto a = static_cast<std::size_t>(axis);
      if (++index[a] < tensor.extent[a]) break;
      index[a] = 0;
    }
  }
  return {};
}

/// Gives the whole file to `out`.
inline status store_file(const layout& plan, std::span<const safetensors_entry> entries,
                         const sink& out) {
  std::array<std::byte, 8> length{};
  for (std::size_t byte = 0; byte < length.size(); ++byte) {
    length[byte] = static_cast<std::byte>(plan.header.size() >> (8 * byte) & 0xff);
  }
  if (auto done = out(length); !done) return done;
  if (auto done = out(std::as_bytes(std::span(plan.header))); !done) return done;
  for (const std::size_t index : plan.order) {
    if (auto done = store(entries[index].tensor, out); !done) return done;
  }
  return {};
}

/// A new file beside its final place that vanishes unless it is put there.
class temporary_file {
 public:
  temporary_file(const std::filesystem::path& target, mode_t mode) : target_(target) {
    static std::atomic<unsigned> count{0};
    for (int attempt = 0; attempt < 100; ++attempt) {  // a killed process may have left its name
      path_ = target;
      path_ += "." + std::to_string(::getpid()) + "-" + std::to_string(count++) + ".tmp";
      number_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
      open_error_ = number_ < 0 ? errno : 0;
      if (open_error_ != EEXIST) break;
    }
  }
  temporary_file(const temporary_file&) = delete;
  temporary_file& operator=(const temporary_file&) = delete;
  ~temporary_file() {
    if (number_ >= 0) ::close(number_);
    if (open_error_ == 0 && !placed_) ::unlink(path_.c_str());
  }

  status opened() const {
    if (open_error_ == 0) return {};
    return system_refusal(target_, "cannot be written", open_error_);
  }
  status write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(number_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return system_refusal(target_, "cannot be written", errno);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return {};
  }
  status place() {
    if (::fsync(number_) != 0) return system_refusal(target_, "cannot be written", errno);
    if (::close(std::exchange(number_, -1)) != 0) {
      return system_refusal(target_, "cannot be written", errno);
    }
    if (::rename(path_.c_str(), target_.c_str()) != 0) {
      return system_refusal(target_, "cannot be replaced", errno);
    }
    placed_ = true;
    return {};
  }

 private:
  std::filesystem::path target_;
  std::filesystem::path path_;
  int number_ = -1;
  int open_error_ = 0;
  bool placed_ = false;
};

}  // namespace safetensors

// One unit includes this file (see all.hpp), so the functions are not inline.
// NOLINTBEGIN(misc-definitions-in-headers)

status write_safetensors(const std::filesystem::path& path,
                         std::span<const safetensors_entry> entries,
                         const safetensors_metadata& metadata) {
  const auto plan = safetensors::plan_file(entries, metadata, path.string());
  if (!plan) return plan.failure();

  // A link keeps its place, the file behind it is replaced; what is no file is left alone.
  std::error_code unresolved;
  std::filesystem::path target = std::filesystem::weakly_canonical(path, unresolved);
  if (unresolved) target = path;
  struct stat facts {};
  const bool exists = ::stat(target.c_str(), &facts) == 0;
  if (exists && !S_ISREG(facts.st_mode)) {
    return {status_code::io, path.string() + ": is there and is not a regular file"};
  }
  safetensors::temporary_file file(target, exists ? facts.st_mode & 0777 : 0666);
  if (auto done = file.opened(); !done) return done;
  const auto write = [&](std::span<const std::byte> bytes) { return file.write(bytes); };
  if (auto done = safetensors::store_file(*plan, entries, write); !done) return done;
  return file.place();
}

result<std::vector<std::byte>> safetensors_bytes(std::span<const safetensors_entry> entries,
                                                 const safetensors_metadata& metadata) {
  const auto plan = safetensors::plan_file(entries, metadata, "safetensors data");
  if (!plan) return plan.failure();
  std::vector<std::byte> bytes;
  const auto append = [&](std::span<const std::byte> more) {
    bytes.insert(bytes.end(), more.begin(), more.end());
    return status();
  };
  if (auto done = safetensors::store_file(*plan, entries, append); !done) return done;
  return bytes;
}

// NOLINTEND(misc-definitions-in-headers)

}  // namespace tessera
