#include "device_tensors.hpp"

#include <cstdint>
#include <utility>

namespace tessera::tool {

namespace {

/// The bytes from the first to the last element of a tensor in memory.
struct byte_span {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
};

byte_span span_of(const tensor_view& view) {
  if (view.elements() == 0) return {};
  std::int64_t low = 0;
  std::int64_t high = 0;
  for (int axis = 0; axis < view.rank; ++axis) {
    const auto at = static_cast<std::size_t>(axis);
    const std::int64_t reach = (view.extent[at] - 1) * view.stride[at];
    (reach < 0 ? low : high) += reach;
  }
  const auto size = static_cast<std::int64_t>(size_of(view.type));
  return {static_cast<std::byte*>(view.data) + low * size,
          static_cast<std::size_t>((high - low + 1) * size)};
}

}  // namespace

result<tensor_view> device_tensors::add(const tensor_view& host) {
  if (!host.present()) return host;
  tensor_view there = host;
  there.device = device_;
  there.data = nullptr;
  const byte_span span = span_of(host);
  if (span.bytes == 0) return there;
  result<device_buffer> memory = device_buffer::allocate(device_, span.bytes, stream_);
  if (!memory) return memory.failure();
  std::byte* const begin = memory->data();
  if (status done = copy_memory(device_, begin, span.begin, span.bytes, stream_); !done) {
    return done;
  }
  there.data = begin + (static_cast<std::byte*>(host.data) - span.begin);
  copies_.push_back({span.begin, *std::move(memory)});
  return there;
}

status device_tensors::fetch(const tensor_view& host) const {
  const byte_span span = host.present() ? span_of(host) : byte_span{};
  for (const copied& copy : copies_) {
    if (span.bytes == 0 || copy.host != span.begin) continue;
    return copy_memory(device_, copy.host, copy.memory.data(), span.bytes, stream_);
  }
  return {};
}

}  // namespace tessera::tool
