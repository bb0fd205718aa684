// Transposing in registers (PTX movmatrix, sm_75).
#pragma once

#include <cstdint>

namespace tessera::prim::cuda {

/// An 8x8 tile of 16-bit elements that a warp has in its registers, transposed: lane l has two
/// neighbours of row l / 4, at columns l % 4 * 2 and the next. By a whole warp.
__device__ __forceinline__ std::uint32_t transposed_tile(std::uint32_t word) {
  std::uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(word));
  return result;
}

}  // namespace tessera::prim::cuda
