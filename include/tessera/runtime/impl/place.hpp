// Where a call runs: a device, what is known of it, how many workers, which stream.
#pragma once

#include <string>

#include <tessera/api/context.hpp>
#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/impl/threads.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

namespace impl {

struct place {
  device_id device{};
  const device_facts* facts = nullptr;
  int workers = 1;  ///< threads; of a GPU its multiprocessors
  void* stream = nullptr;

  bool is_gpu() const noexcept { return device.kind != device_kind::cpu; }
};

}  // namespace impl

namespace {

/// A stream on the CPU is a mistake.
status check_stream(device_id device, const void* stream) {
  if (stream == nullptr || device.kind != device_kind::cpu) [[likely]]
    return {};
  return {status_code::invalid_argument,
          "stream: is given, and this call runs on the CPU, which has none"};
}

[[gnu::cold, gnu::noinline]] status find_gpu(device_id device, impl::place& spot) {
  const result<const device_facts*> found = find_device(device);
  if (!found) return found.failure();
  spot.facts = *found;
  spot.workers = spot.facts->multiprocessors;
  return {};
}

/// The place of a call whose tensors lie on `device`.
status find_place(device_id device, const context& where, impl::place& spot) {
  spot.device = device;
  spot.stream = where.stream;
  if (spot.is_gpu()) return find_gpu(device, spot);
  if (status done = check_stream(device, where.stream); !done) return done;
  spot.facts = &this_device();
  return resolve_threads(where.threads, spot.workers);
}

/// A place that need not be there.
status find_place_on(const device_facts& device, const context& where, impl::place& spot) {
  spot.device = device.id();
  spot.facts = &device;
  spot.workers = device.multiprocessors;
  return spot.is_gpu() ? status() : resolve_threads_of(device, where.threads, spot.workers);
}

/// A failure on a GPU with the names of the GPU and of what failed there.
[[gnu::cold]] status failure_on(const impl::place& spot, std::string_view what,
                                const status& failed) {
  std::string sentence(text_of(spot.device).view());
  sentence.append(" (").append(spot.facts->product_name()).append("): ");
  sentence.append(what).append(": ").append(failed.message());
  return {failed.code(), std::move(sentence)};
}

}  // namespace

}  // namespace tessera
