// What a checked plan counts: per tensor, entries in a GPU's memory that no kernel obeys.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <tessera/runtime/impl/content_rules.hpp>
#include <tessera/runtime/impl/cuda/calls.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::impl {

/// A number per tensor of an operation.
using tensor_counts = std::array<std::uint64_t, max_tensors>;

/// Numbers in the memory of one GPU, 0 when they are reserved.
class fault_counters {
 public:
  fault_counters() = default;
  ~fault_counters() {
    if (counts_ == nullptr) return;
    const cuda::current_device scope(gpu_);
    cuda::release_for_all(counts_);
  }
  fault_counters(const fault_counters&) = delete;
  fault_counters& operator=(const fault_counters&) = delete;

  bool reserved() const noexcept { return counts_ != nullptr; }

  /// On the current device, which has that number.
  status reserve(int gpu) {
    gpu_ = gpu;
    return cuda::allocate_for_all(sizeof(tensor_counts), counts_, cuda::first_contents::zeros);
  }

  /// Adds the faults of a call's tensors, on the current device.
  status add(const bound_call& call, void* stream) const {
    status done;
    for_each_content_rule(call, [&](std::size_t tensor, const content_rule& rule) {
      auto* const count = static_cast<std::uint64_t*>(counts_) + tensor;
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
    return cuda::copy(counts.data(), counts_, sizeof counts, stream);
  }

 private:
  void* counts_ = nullptr;
  int gpu_ = 0;
};

}  // namespace tessera::impl
