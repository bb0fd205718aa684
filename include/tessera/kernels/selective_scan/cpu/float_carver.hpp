// Parts of a launch's scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/prim/common/host_device.hpp>

namespace tessera::kernels::selective_scan::cpu {

/// Hands out parts of one piece of memory, each in cache lines of its own; without a base only
/// counts.
class float_carver {
 public:
  TESSERA_INLINE explicit float_carver(std::byte* base) : base_(base) {}
  TESSERA_INLINE float* take(std::int64_t count) {
    float* const part = base_ == nullptr ? nullptr : reinterpret_cast<float*>(base_ + bytes_);
    bytes_ += (static_cast<std::size_t>(count) * sizeof(float) + 63) / 64 * 64;
    return part;
  }
  TESSERA_INLINE std::size_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  std::size_t bytes_ = 0;
};

}  // namespace tessera::kernels::selective_scan::cpu
