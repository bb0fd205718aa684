// A GPU as a place to measure on: inputs are copied there, times are those between two marks in a
// stream. Everything is made at the first need, so that a process which only plans does not touch
// the GPU.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/device_memory.hpp>

#include "bench/support/device_mirror.hpp"
#include "bench/support/gpu_stopwatch.hpp"
#include "guarded_memory.hpp"
#include "measuring_place.hpp"

namespace tessera::tuner {

class gpu_place final : public measuring_place {
 public:
  explicit gpu_place(const device_facts& facts)
      : gpu_(facts.id()), cache_bytes_(static_cast<std::size_t>(facts.l2_bytes)) {}

  std::size_t cache_bytes() const override { return cache_bytes_; }
  void* stream() const noexcept override { return watch_ ? watch_->stream() : nullptr; }

  status bring(std::span<const std::span<const std::byte>> blocks) override;
  void drop() override;
  tensor_view brought(const tensor_view& host) const noexcept override;

  status reset(std::size_t slot, std::size_t bytes) override;
  status fill(std::size_t slot, std::span<const std::byte> bytes) override;
  std::byte* data(std::size_t slot) const noexcept override;
  status fetch() override;
  std::span<std::byte> bytes(std::size_t slot) const noexcept override {
    return slots_[slot].here.bytes();
  }
  bool intact(std::size_t slot) const noexcept override { return slots_[slot].here.intact(); }

  status run(const std::function<status()>& work) override;
  result<double> seconds_of(const std::function<status()>& work) override;

 private:
  struct slot_memory {
    guarded_memory here;  ///< as it was fetched
    device_buffer there;
  };

  status open();

  device_id gpu_;
  std::size_t cache_bytes_;
  std::optional<bench::gpu_stopwatch> watch_;
  std::optional<bench::device_mirror> inputs_;
  std::vector<slot_memory> slots_;
};

}  // namespace tessera::tuner
