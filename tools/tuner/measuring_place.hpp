// Where the rows of a problem run: in whose memory their tensors lie, and whose clock times them.
// Gate and race know nothing of it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::tuner {

/// A device with the memory of one call. What a row reads is brought there from blocks of host
/// memory; what it writes lies there between canaries, in slots, and is fetched.
class measuring_place {
 public:
  virtual ~measuring_place() = default;

  /// Bytes of its largest cache.
  virtual std::size_t cache_bytes() const = 0;
  /// Null on the CPU.
  virtual void* stream() const noexcept { return nullptr; }

  /// Makes what lies in these blocks readable there, if it is not already.
  virtual status bring(std::span<const std::span<const std::byte>> blocks) = 0;
  /// Forgets what was brought, and the slots.
  virtual void drop() = 0;
  /// The counterpart of a tensor in one of the blocks.
  virtual tensor_view brought(const tensor_view& host) const noexcept = 0;

  /// Makes a slot so large, with canaries on both sides and a pattern everywhere.
  virtual status reset(std::size_t slot, std::size_t bytes) = 0;
  /// Puts bytes into a slot of that size.
  virtual status fill(std::size_t slot, std::span<const std::byte> bytes) = 0;
  /// Where a row finds a slot.
  virtual std::byte* data(std::size_t slot) const noexcept = 0;
  /// Makes `bytes` and `intact` tell what the rows wrote.
  virtual status fetch() = 0;
  virtual std::span<std::byte> bytes(std::size_t slot) const noexcept = 0;
  /// True if nobody wrote before or behind the slot.
  virtual bool intact(std::size_t slot) const noexcept = 0;

  /// Does something that launches rows, and waits for them. Throws where a device can do nothing
  /// more for this process: that is a crash.
  virtual status run(const std::function<status()>& work) = 0;
  /// The same, and how long it took by the clock of the device.
  virtual result<double> seconds_of(const std::function<status()>& work) = 0;
};

/// The processor or GPU of these facts. Nothing is asked of a GPU until something is brought or
/// reset there.
std::unique_ptr<measuring_place> place_on(const device_facts& device);

/// The facts of a GPU, found out in a child process: a process that has used a GPU cannot fork
/// children that do. The refusal says what is missing.
result<device_facts> facts_in_child(device_id gpu);

}  // namespace tessera::tuner
