// Copies to shared memory and loads from it of less than 16 bytes (async_copy.hpp has the others).
#pragma once

#include <cstdint>

namespace tessera::prim::cuda {

/// Copies 8 bytes between multiples of 8, or writes zeros; then the source may be anything.
__device__ __forceinline__ void copy_async_8(std::uint32_t to, const void* from, bool wanted) {
  asm volatile(
      "{ .reg .pred p; setp.eq.b32 p, %2, 0;\n"
      "cp.async.ca.shared.global [%0], [%1], 8, p; }" ::"r"(to),
      "l"(from), "r"(static_cast<int>(wanted))
      : "memory");
}

/// Loads 8 bytes from a multiple of 8.
__device__ __forceinline__ void load_shared_8(std::uint32_t& low, std::uint32_t& high,
                                              std::uint32_t from) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(low), "=r"(high) : "r"(from));
}
__device__ __forceinline__ std::uint16_t load_shared_2(std::uint32_t from) {
  std::uint16_t bits;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(bits) : "r"(from));
  return bits;
}
__device__ __forceinline__ std::uint32_t load_shared_1(std::uint32_t from) {
  std::uint32_t byte;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(byte) : "r"(from));
  return byte;
}

}  // namespace tessera::prim::cuda
