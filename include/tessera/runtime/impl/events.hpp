// The sink of the process.
#pragma once

#include <atomic>

#include <tessera/runtime/events.hpp>

namespace tessera {

namespace {
constinit std::atomic<const event_sink*> process_sink{nullptr};
}  // namespace

const event_sink* set_event_sink(const event_sink* sink) noexcept {
  return process_sink.exchange(sink, std::memory_order_acq_rel);
}

const event_sink* installed_event_sink() noexcept {
  // Relaxed on the way without a sink; whoever follows the pointer needs what it points to.
  if (process_sink.load(std::memory_order_relaxed) == nullptr) return nullptr;
  return process_sink.load(std::memory_order_acquire);
}

}  // namespace tessera
