// The class of a device as text.
#pragma once

#include <cstdint>
#include <string_view>

#include <tessera/runtime/key.hpp>

namespace tessera {

namespace {

/// "32K", "1M", "33554433" (bytes that are not whole).
void append_bytes(device_class_text& text, std::int64_t bytes) noexcept {
  constexpr std::int64_t kibi = 1024;
  constexpr std::int64_t mebi = kibi * kibi;
  if (bytes >= mebi && bytes % mebi == 0) {
    text.append(bytes / mebi) += 'M';
  } else if (bytes >= kibi && bytes % kibi == 0) {
    text.append(bytes / kibi) += 'K';
  } else {
    text.append(bytes);
  }
}

}  // namespace

device_class_text device_class_of(const device_facts& device) noexcept {
  device_class_text text;
  if (device.kind == device_kind::cuda) {
    (text += "cuda_cc").append(device.compute_capability);
    (text += ".sms=").append(device.multiprocessors);
    append_bytes(text += ".l2=", device.l2_bytes);
    append_bytes(text += ".shared=", device.shared_bytes_per_block);
    // Bandwidth in steps of 100 GB/s: products of one chip differ by their memory.
    const double steps = device.memory_bytes_per_second() * 1e-11 + 0.5;
    (text += ".memory=").append(100 * static_cast<std::int64_t>(steps)) += 'G';
    return text;
  }
  text += name_of(device.highest);
  append_bytes(text += ".l1d=", device.l1d_bytes);
  append_bytes(text += ".l2=", device.l2_bytes);
  (text += ".cores=").append(bucket_top(device.physical_cores));
  return text;
}

}  // namespace tessera
