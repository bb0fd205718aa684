#include "gpu_place.hpp"

#include <functional>
#include <stdexcept>
#include <utility>

namespace tessera::tuner {
namespace {

/// An error that comes with the work of a stream stays with the process.
void require_device(const status& done) {
  if (!done) throw std::runtime_error(done.message());
}

}  // namespace

status gpu_place::open() {
  if (watch_) return {};
  result<bench::gpu_stopwatch> watch = bench::gpu_stopwatch::make(gpu_);
  if (!watch) return watch.failure();
  watch_.emplace(*std::move(watch));
  return {};
}

status gpu_place::bring(std::span<const std::span<const std::byte>> blocks) {
  if (inputs_) return {};
  if (status done = open(); !done) return done;
  bench::device_mirror copies(gpu_, stream());
  for (const std::span<const std::byte> block : blocks) {
    if (status done = copies.add(block); !done) return done;
  }
  inputs_.emplace(std::move(copies));
  return {};
}

void gpu_place::drop() {
  inputs_.reset();
  slots_.clear();
}

tensor_view gpu_place::brought(const tensor_view& host) const noexcept {
  return inputs_ ? inputs_->at(host) : host;
}

status gpu_place::reset(std::size_t slot, std::size_t bytes) {
  if (status done = open(); !done) return done;
  if (slots_.size() <= slot) slots_.resize(slot + 1);
  slot_memory& buffers = slots_[slot];
  buffers.here.resize(bytes);
  const std::size_t all = buffers.here.all().size();
  if (buffers.there.size() < all) {
    result<device_buffer> memory = device_buffer::allocate(gpu_, all, stream());
    if (!memory) return memory.failure();
    buffers.there = *std::move(memory);
  }
  return fill_memory(gpu_, buffers.there.data(), guarded_memory::pattern, all, stream());
}

status gpu_place::fill(std::size_t slot, std::span<const std::byte> bytes) {
  return copy_memory(gpu_, data(slot), bytes.data(), bytes.size(), stream());
}

std::byte* gpu_place::data(std::size_t slot) const noexcept {
  return slots_[slot].there.data() + guarded_memory::band;
}

status gpu_place::fetch() {
  for (const slot_memory& slot : slots_) {
    const std::span<std::byte> all = slot.here.all();
    status done = copy_memory(gpu_, all.data(), slot.there.data(), all.size(), stream());
    if (!done) return done;
  }
  return {};
}

status gpu_place::run(const std::function<status()>& work) {
  if (status done = open(); !done) return done;
  if (status done = with_device(gpu_, work); !done) return done;
  require_device(wait_for(gpu_, stream()));
  return {};
}

result<double> gpu_place::seconds_of(const std::function<status()>& work) {
  if (status done = open(); !done) return done;
  result<double> took = watch_->seconds_of(work);
  if (!took) require_device(wait_for(gpu_, stream()));
  return took;
}

}  // namespace tessera::tuner
