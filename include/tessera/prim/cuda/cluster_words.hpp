// Loads of 16 bytes from the shared memory of another block of the cluster (cluster.hpp has the
// others).
#pragma once

#include <cstdint>

namespace tessera::prim::cuda {

/// What a block of the cluster has at the place where this one has `at`, a multiple of 16, in its
/// shared memory.
__device__ __forceinline__ float4 load_four_of_block(std::uint32_t at, std::uint32_t block) {
  float4 four;
  asm volatile(
      "{ .reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there]; }"
      : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
      : "r"(at), "r"(block)
      : "memory");
  return four;
}

}  // namespace tessera::prim::cuda
