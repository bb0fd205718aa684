// Boxes on their way from shared to global memory by the copy unit of sm_90: what tensor_map.hpp
// has in the other direction. The thread that asks for stores groups them and waits for its groups.
#pragma once

#include <cstdint>

#include <cuda.h>

namespace tessera::prim::cuda {

/// Asks for the box at `at` (column, then outwards) to be written; what lies outside the tensor is
/// not, but for columns in the last one's 16 bytes: rows have a multiple of 16 bytes. `from` is a
/// multiple of 1024, and what it holds has been shown to the copy unit
/// (`show_writes_to_async_units`). By one thread.
__device__ __forceinline__ void store_box(const CUtensorMap& map, std::uint32_t from,
                                          const int (&at)[4]) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::
          "l"(&map),
      "r"(from), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])
      : "memory");
}

/// Ends a group of stores.
__device__ __forceinline__ void commit_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Waits until all of this thread's groups have been read from shared memory, which may then be
/// written again, or given back.
__device__ __forceinline__ void wait_for_reads_of_stores() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

}  // namespace tessera::prim::cuda
