// Copies from global to shared memory that run beside the arithmetic (PTX cp.async, sm_80 on). A
// thread's copies form groups; a wait makes its own copies visible to itself, a barrier after it to
// the others.
#pragma once

#include <cstdint>

namespace tessera::prim::cuda {

/// The address of `pointer`, which lies in shared memory, as PTX takes it.
__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Copies the first `bytes` (0 to 16) of 16 and fills up with zeros. Both addresses are multiples
/// of 16; with 0 bytes the source is not read and may be anything. Passes L1 by.
__device__ __forceinline__ void copy_async_16(std::uint32_t to, const void* from,
                                              std::uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(bytes)
               : "memory");
}

/// Copies all 16 bytes. (Cheaper: with a size that may be 0, nvcc 13.0 adds three instructions.)
__device__ __forceinline__ void copy_async_16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from)
               : "memory");
}

/// The same if `wanted`, else nothing. No branch, so that it can be scheduled among other work.
__device__ __forceinline__ void copy_async_16_if(bool wanted, std::uint32_t to, const void* from) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %2, 0;\n"
      "@p cp.async.cg.shared.global.L2::128B [%0], [%1], 16; }" ::"r"(to),
      "l"(from), "r"(static_cast<int>(wanted))
      : "memory");
}

/// Copies all 16 bytes or writes zeros; then the source may be anything.
__device__ __forceinline__ void copy_async_16_or_zeros(std::uint32_t to, const void* from,
                                                       bool wanted) {
  asm volatile(
      "{ .reg .pred p; setp.eq.b32 p, %2, 0;\n"
      "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, p; }" ::"r"(to),
      "l"(from), "r"(static_cast<int>(wanted))
      : "memory");
}

/// Copies 4 bytes between multiples of 4, or writes zeros; then the source may be anything.
__device__ __forceinline__ void copy_async_4(std::uint32_t to, const void* from, bool wanted) {
  asm volatile(
      "{ .reg .pred p; setp.eq.b32 p, %2, 0;\n"
      "cp.async.ca.shared.global [%0], [%1], 4, p; }" ::"r"(to),
      "l"(from), "r"(static_cast<int>(wanted))
      : "memory");
}

/// Ends a group of copies.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits until at most `Pending` of this thread's groups are under way.
template <int Pending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

/// Stores 16 bytes at a multiple of 16.
__device__ __forceinline__ void store_shared_16(std::uint32_t to, const std::uint32_t (&words)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]),
               "r"(words[2]), "r"(words[3])
               : "memory");
}

/// Loads 16 bytes from a multiple of 16.
__device__ __forceinline__ void load_shared_16(std::uint32_t (&words)[4], std::uint32_t from) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(from)
               : "memory");
}

__device__ __forceinline__ void store_shared_4(std::uint32_t to, std::uint32_t word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}

/// Stores 8 bytes at a multiple of 8.
__device__ __forceinline__ void store_shared_8(std::uint32_t to, std::uint32_t low,
                                               std::uint32_t high) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(low), "r"(high) : "memory");
}

__device__ __forceinline__ std::uint32_t load_shared_4(std::uint32_t from) {
  std::uint32_t word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  return word;
}

}  // namespace tessera::prim::cuda
