// Blocks that run side by side and reach each other's shared memory (sm_90): a cluster.
#pragma once

#include <cstdint>

namespace tessera::prim::cuda {

/// Number of this block in its cluster, and how many there are.
__device__ __forceinline__ std::uint32_t block_in_cluster() {
  std::uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ std::uint32_t blocks_of_cluster() {
  std::uint32_t count;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
  return count;
}

/// The halves of `wait_for_cluster`, for what there is to do between them.
__device__ __forceinline__ void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait_for_arrivals() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/// All threads of all blocks wait for each other: before the first access to another block's memory
/// and, as that must still be there, behind the last.
__device__ __forceinline__ void wait_for_cluster() {
  arrive_at_cluster();
  wait_for_arrivals();
}

/// What a block of the cluster has at the place where this one has `at` in its shared memory.
__device__ __forceinline__ float2 load_of_block(std::uint32_t at, std::uint32_t block) {
  float2 pair;
  asm volatile(
      "{ .reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %2, %3;\n"
      "ld.shared::cluster.v2.f32 {%0, %1}, [there]; }"
      : "=f"(pair.x), "=f"(pair.y)
      : "r"(at), "r"(block)
      : "memory");
  return pair;
}

/// Arrives at the barrier that a block of the cluster has at the place where this one has
/// `barrier`. What this thread has read or written before is ordered for its own block only: a
/// release for the whole cluster waits for the memory of the device, and took most of the time of a
/// matrix product.
__device__ __forceinline__ void arrive_at_block(std::uint32_t barrier, std::uint32_t block) {
  asm volatile(
      "{ .reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(barrier),
      "r"(block)
      : "memory");
}

/// Stores 8 bytes in the shared memory of a block of the cluster, at the place where this one has
/// `at`; they count as bytes at the barrier that it has at the place of `barrier`.
__device__ __forceinline__ void store_at_block(std::uint32_t at, std::uint64_t value,
                                               std::uint32_t barrier, std::uint32_t block) {
  asm volatile(
      "{ .reg .b32 there, counted;\n"
      "mapa.shared::cluster.u32 there, %0, %3;\n"
      "mapa.shared::cluster.u32 counted, %2, %3;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [there], %1, [counted]; }" ::
          "r"(at),
      "l"(value), "r"(barrier), "r"(block)
      : "memory");
}

}  // namespace tessera::prim::cuda
