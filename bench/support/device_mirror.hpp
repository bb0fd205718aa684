// Copies of host memory on a GPU, in which tensors have the same place as at home.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <tessera/runtime/device_memory.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::bench {

/// Blocks of host memory with a copy each, all in the order of one stream. Blocks stay where they
/// are as long as the mirror is asked for tensors.
class device_mirror {
 public:
  device_mirror(device_id device, void* stream) : device_(device), stream_(stream) {}

  /// Copies a block to the device.
  status add(std::span<const std::byte> block) {
    if (block.empty()) return {};
    if (status done = reserve(block); !done) return done;
    return send(block);
  }

  /// Memory for a block, whatever it holds.
  status reserve(std::span<const std::byte> block) {
    if (block.empty()) return {};
    result<device_buffer> there = device_buffer::allocate(device_, block.size(), stream_);
    if (!there) return there.failure();
    blocks_.push_back({block, *std::move(there)});
    return {};
  }

  /// The counterpart of a tensor whose data lies in a block; one without data if it lies in none.
  /// What is absent stays so.
  tensor_view at(const tensor_view& host) const noexcept {
    if (!host.present()) return host;
    tensor_view there = host;
    there.device = device_;
    there.data = counterpart(static_cast<const std::byte*>(host.data));
    return there;
  }

  /// Copies part of a block to the device, or what the device has of it back. What lies in no block
  /// stays where it is.
  status send(std::span<const std::byte> part) const {
    std::byte* const there = counterpart(part.data());
    if (there == nullptr || part.empty()) return {};
    return copy_memory(device_, there, part.data(), part.size(), stream_);
  }
  status fetch(std::span<std::byte> part) const {
    const std::byte* const there = counterpart(part.data());
    if (there == nullptr || part.empty()) return {};
    return copy_memory(device_, part.data(), there, part.size(), stream_);
  }

 private:
  /// Null for bytes of no block.
  std::byte* counterpart(const std::byte* host) const noexcept {
    for (const copy& held : blocks_) {
      const std::byte* const begin = held.block.data();
      if (host >= begin && host < begin + held.block.size()) {
        return held.there.data() + (host - begin);
      }
    }
    return nullptr;
  }

  struct copy {
    std::span<const std::byte> block;
    device_buffer there;
  };

  device_id device_;
  void* stream_;
  std::vector<copy> blocks_;
};

}  // namespace tessera::bench
