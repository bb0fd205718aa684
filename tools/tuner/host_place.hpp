// This machine's processor as a place to measure on: tensors stay where they are.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "bench/support/memory.hpp"
#include "guarded_memory.hpp"
#include "measuring_place.hpp"

namespace tessera::tuner {

class host_place final : public measuring_place {
 public:
  std::size_t cache_bytes() const override { return bench::last_level_cache_bytes(); }

  status bring(std::span<const std::span<const std::byte>>) override { return {}; }
  void drop() override { slots_.clear(); }
  tensor_view brought(const tensor_view& host) const noexcept override { return host; }

  status reset(std::size_t slot, std::size_t bytes) override {
    if (slots_.size() <= slot) slots_.resize(slot + 1);
    slots_[slot].reset(bytes);
    return {};
  }
  status fill(std::size_t slot, std::span<const std::byte> bytes) override {
    std::ranges::copy(bytes, slots_[slot].bytes().begin());
    return {};
  }
  std::byte* data(std::size_t slot) const noexcept override { return slots_[slot].bytes().data(); }
  status fetch() override { return {}; }
  std::span<std::byte> bytes(std::size_t slot) const noexcept override {
    return slots_[slot].bytes();
  }
  bool intact(std::size_t slot) const noexcept override { return slots_[slot].intact(); }

  status run(const std::function<status()>& work) override { return work(); }
  result<double> seconds_of(const std::function<status()>& work) override {
    const auto begin = std::chrono::steady_clock::now();
    if (status done = work(); !done) return done;
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  std::vector<guarded_memory> slots_;
};

}  // namespace tessera::tuner
