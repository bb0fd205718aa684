// 8x8 tiles of 16-bit elements in registers (PTX movmatrix, sm_75 on).
#pragma once

#include <cstdint>

namespace tessera::prim::cuda {

/// Lane 4 g + t has columns 2t and 2t + 1 of row g of a tile, as products leave and take them, and
/// gets those of the tile transposed. By a whole warp.
__device__ __forceinline__ std::uint32_t transposed_tile(std::uint32_t word) {
  std::uint32_t other;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(other) : "r"(word));
  return other;
}

}  // namespace tessera::prim::cuda
