// The sink of the process.
#pragma once

#include <atomic>

#include <tessera/runtime/events.hpp>

namespace tessera {

constinit std::atomic<const event_sink*> impl::process_sink{nullptr};

const event_sink* set_event_sink(const event_sink* sink) noexcept {
  return impl::process_sink.exchange(sink, std::memory_order_acq_rel);
}

}  // namespace tessera
