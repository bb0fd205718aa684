// Devices by their number: facts found out once, texts both ways.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/impl/cuda/calls.hpp>

namespace tessera {

namespace {

/// The number of devices, or why nobody can tell; asked again after a failure, since a driver may
/// be loaded later.
status counted_devices(int& count) {
  static constinit std::atomic<int> known{-1};
  count = known.load(std::memory_order_relaxed);
  if (count >= 0) return {};
  status done = impl::cuda::count_devices(count);
  if (done) known.store(count, std::memory_order_relaxed);
  return done;
}

constexpr int most_known_devices = 64;

[[gnu::cold]] status no_such_device(int ordinal, int count) {
  std::string sentence = "cuda:" + std::to_string(ordinal) + ": this process sees ";
  return {status_code::device,
          sentence + std::to_string(count) + " CUDA device" + (count == 1 ? "" : "s")};
}

/// Facts of the CUDA devices asked for so far. They stay: choices and plans point to them.
class known_devices {
 public:
  result<const device_facts*> find(int ordinal) {
    if (ordinal >= 0 && ordinal < most_known_devices) {
      const auto at = static_cast<std::size_t>(ordinal);
      if (const device_facts* known = facts_[at].load(std::memory_order_acquire)) return known;
    }
    return find_anew(ordinal);
  }

 private:
  [[gnu::cold]] result<const device_facts*> find_anew(int ordinal) {
    int count = 0;
    if (status done = counted_devices(count); !done) {
      return status(done.code(), "cuda:" + std::to_string(ordinal) + ": " + done.message());
    }
    if (ordinal < 0 || ordinal >= std::min(count, most_known_devices)) {
      return no_such_device(ordinal, count);
    }
    const std::lock_guard lock(guard_);
    auto& slot = facts_[static_cast<std::size_t>(ordinal)];
    if (const device_facts* known = slot.load(std::memory_order_acquire)) return known;
    auto found = std::make_unique<device_facts>();
    if (status done = impl::cuda::read_facts(ordinal, *found); !done) {
      return status(done.code(), "cuda:" + std::to_string(ordinal) + ": " + done.message());
    }
    slot.store(found.get(), std::memory_order_release);
    return static_cast<const device_facts*>(found.release());
  }

  std::mutex guard_;
  std::array<std::atomic<const device_facts*>, most_known_devices> facts_{};
};

}  // namespace

int cuda_device_count() noexcept {
  int count = 0;
  return counted_devices(count) ? count : 0;
}

result<const device_facts*> find_device(device_id device) {
  static constinit known_devices gpus;
  if (device == device_id{}) return &this_device();
  if (device.kind == device_kind::cuda) return gpus.find(device.ordinal);
  return status(status_code::device, "device: is " + std::string(text_of(device).view()) +
                                         ", must be cpu:0 or cuda: and a number from 0");
}

std::optional<device_id> device_named(std::string_view text) noexcept {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string_view kind = text.substr(0, colon);
  device_id device;
  if (kind == "cuda") {
    device.kind = device_kind::cuda;
  } else if (kind != "cpu") {
    return std::nullopt;
  }
  if (colon == text.size()) return device;
  const std::string_view number = text.substr(colon + 1);
  const char* const last = number.data() + number.size();
  const auto [end, error] = std::from_chars(number.data(), last, device.ordinal);
  const bool whole = error == std::errc{} && end == last && device.ordinal >= 0;
  return whole && (device.kind == device_kind::cuda || device.ordinal == 0) ? std::optional(device)
                                                                            : std::nullopt;
}

}  // namespace tessera
