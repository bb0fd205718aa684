// Lines of f32 in shared memory that the copy unit of sm_90 adds to global memory. Addresses and
// sizes are multiples of 16 bytes, and what shared memory holds has been shown to the copy unit
// (`show_writes_to_async_units`).
#pragma once

#include <cstdint>

namespace tessera::prim::cuda {

/// Asks for a line to be added to what lies at `to`. By one thread.
__device__ __forceinline__ void add_line(float* to, std::uint32_t from, int bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;\n"
      "cp.async.bulk.commit_group;" ::"l"(to),
      "r"(from), "r"(bytes)
      : "memory");
}

/// Waits until all lines of this thread have been added: shared memory may be written again.
__device__ __forceinline__ void wait_for_lines() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace tessera::prim::cuda
