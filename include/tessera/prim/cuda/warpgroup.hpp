// Four warps that multiply together (sm_90a): registers handed from one warpgroup to another, and
// what keeps the compiler from moving registers of products under way.
#pragma once

#include <cstdint>

#include <tessera/prim/cuda/warp.hpp>

namespace tessera::prim::cuda {

inline constexpr int warpgroup_size = 128;

/// Number of the warpgroup in its block. By way of a shuffle, so that the compiler knows it to be
/// the same for the whole warp: addresses that follow from it then need no registers of lanes.
__device__ __forceinline__ int warpgroup_index() {
  return __shfl_sync(all_lanes, static_cast<int>(threadIdx.x) / warpgroup_size, 0);
}

/// Registers of a thread of this warpgroup from here on, a multiple of 8. The sum over all
/// warpgroups stays within what the launch gave the block; taking waits until others have given.
template <int Registers>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

/// Before the first product after registers of products were touched.
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/// Ends a group of products.
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most `Pending` groups are under way.
template <int Pending>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

/// Reads and writes registers as far as nvcc knows: their uses stay on their side of a wait.
template <int Count>
__device__ __forceinline__ void keep_in_place(float (&registers)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}
template <int Count>
__device__ __forceinline__ void keep_in_place(std::int32_t (&registers)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}
template <int Count>
__device__ __forceinline__ void keep_in_place(std::uint32_t (&registers)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}

}  // namespace tessera::prim::cuda
