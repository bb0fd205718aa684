// What holds for any of some threads of a block, by one of its barriers.
#pragma once

namespace tessera::prim::cuda {

/// Waits for `threads` threads, whole warps, of the block, and says whether `here` holds for any of
/// them. `number`: 0 to 15, of the barrier; 0 is that of __syncthreads.
__device__ __forceinline__ bool any_of_threads(int number, int threads, bool here) {
  int any;
  asm volatile(
      "{ .reg .pred here, any;\n"
      "setp.ne.s32 here, %3, 0;\n"
      "bar.red.or.pred any, %1, %2, here;\n"
      "selp.s32 %0, 1, 0, any; }"
      : "=r"(any)
      : "r"(number), "r"(threads), "r"(static_cast<int>(here))
      : "memory");
  return any != 0;
}

}  // namespace tessera::prim::cuda
