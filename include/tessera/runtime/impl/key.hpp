// The class of a device as text.
#pragma once

#include <algorithm>
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

key_line text_of(const demand_field& field, std::int64_t value) noexcept {
  key_line text;
  if (field.words.empty()) {
    text.append(value);
  } else if (!field.is_set) {
    const auto index = static_cast<std::size_t>(value);
    text += index < field.words.size() ? field.words[index] : "invalid";
  } else {
    for (std::size_t bit = 0; bit < field.words.size(); ++bit) {
      if ((value >> bit & 1) == 0) continue;
      if (!text.empty()) text += '+';
      text += field.words[bit];
    }
    if (text.empty()) text += "none";
  }
  return text;
}

[[gnu::flatten]] key_text key_text_of(const family& kind, const demand& asked, int threads,
                                      device_kind device, bits_promise promise) noexcept {
  key_text key;
  const auto begin = [](key_line& line, std::string_view name) -> key_line& {
    if (!line.empty()) line += ' ';
    return (line += name) += '=';
  };
  for (const demand_field& field : kind.fields) {
    const std::int64_t value = field.value(asked);
    if (field.part == key_part::identity && value != field.usual) {
      begin(key.identity, field.name) += text_of(field, value);
    }
    if (field.part != key_part::size && field.part != key_part::size_or_none) continue;
    const bool none = field.part == key_part::size_or_none && value <= 0;
    begin(key.size, field.name).append(none ? 0 : std::max<std::int64_t>(bucket_top(value), 1));
  }
  if (promise == bits_promise::deterministic) key.identity += " deterministic=true";
  if (promise == bits_promise::batch_invariant) key.identity += " batch_invariant=true";
  if (device == device_kind::cpu) (key.size += " threads=").append(bucket_top(threads));
  return key;
}

void append_work(std::string& text, std::int64_t items, int workers, bool on_gpu) {
  append(text, {", ", items, " work item", items == 1 ? "" : "s", " for ", workers,
                on_gpu ? " multiprocessor" : " thread", workers == 1 ? "" : "s"});
}

}  // namespace tessera
