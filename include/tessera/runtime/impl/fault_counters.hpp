// What a checked plan counts: per tensor, entries in a GPU's memory that no kernel obeys.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tessera/prim/common/content_rules.hpp>
#include <tessera/runtime/impl/cuda/calls.hpp>
#include <tessera/runtime/impl/place.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::impl {

/// A number per tensor of an operation.
using tensor_counts = std::array<std::uint64_t, max_tensors>;

/// Numbers in the memory of one GPU, 0 when they are reserved.
class fault_counters {
 public:
  bool reserved() const noexcept { return !counts_.empty(); }

  /// On the place's GPU, which is current.
  status reserve(const place& spot) {
    return memory_.take_for_plan(spot, sizeof(tensor_counts), counts_, cuda::first_contents::zeros);
  }

  /// Adds the faults of a call's tensors, on the current device.
  status add(const bound_call& call, void* stream) const {
    status done;
    prim::for_each_content_rule(call, [&](std::size_t tensor, const prim::content_rule& rule) {
      auto* const count = reinterpret_cast<std::uint64_t*>(counts_.data()) + tensor;
      if (done) done = cuda::count_faults(rule, count, stream);
    });
    return done;
  }

  /// Reads them when the earlier work of the stream is done; the device is current.
  status read(tensor_counts& counts, void* stream) const {
    bool capturing = false;
    if (status done = cuda::is_capturing(stream, capturing); !done) return done;
    if (capturing) {
      return {status_code::device, "the stream is captured; faults are read when a graph has run"};
    }
    return cuda::copy(counts.data(), counts_.data(), sizeof counts, stream);
  }

 private:
  owned_memory memory_;
  std::span<std::byte> counts_{};
};

}  // namespace tessera::impl
