// Exchange between the lanes of a warp. A quad is four lanes 4 g to 4 g + 3: they hold the columns
// of the same rows of a matrix product (matrix_unit.hpp).
#pragma once

#include <cstdint>

namespace tessera::prim::cuda {

inline constexpr unsigned all_lanes = 0xffffffffu;
inline constexpr int warp_size = 32;

__device__ __forceinline__ float maximum_of_quad(float x) {
  x = fmaxf(x, __shfl_xor_sync(all_lanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(all_lanes, x, 2));
}

__device__ __forceinline__ float sum_of_quad(float x) {
  x += __shfl_xor_sync(all_lanes, x, 1);
  return x + __shfl_xor_sync(all_lanes, x, 2);
}

__device__ __forceinline__ bool any_of_warp(bool x) {
  return __any_sync(all_lanes, x) != 0;
}

/// Smallest and largest value of the warp.
__device__ __forceinline__ int minimum_of_warp(int x) {
  return __reduce_min_sync(all_lanes, x);
}
__device__ __forceinline__ int maximum_of_warp(int x) {
  return __reduce_max_sync(all_lanes, x);
}

/// Sum of `x` over this lane and those before it.
__device__ __forceinline__ int inclusive_sum_of_warp(int x, int lane) {
  for (int step = 1; step < warp_size; step *= 2) {
    const int before = __shfl_up_sync(all_lanes, x, static_cast<unsigned>(step));
    if (lane >= step) x += before;
  }
  return x;
}

/// A copy of `x` that the compiler knows nothing about: what is computed from it in a loop is not
/// kept in registers for the whole loop.
__device__ __forceinline__ unsigned computed_anew(unsigned x) {
  asm volatile("" : "+r"(x));
  return x;
}
__device__ __forceinline__ std::int64_t computed_anew(std::int64_t x) {
  asm volatile("" : "+l"(x));
  return x;
}

template <class T>
__device__ __forceinline__ const T* computed_anew(const T* x) {
  asm volatile("" : "+l"(x));
  return x;
}

/// threadIdx.x as `computed_anew`.
__device__ __forceinline__ unsigned thread_index() {
  return computed_anew(threadIdx.x);
}

/// Lets the next grid of the stream start, if it was launched to (programmatic stream
/// serialization). Does nothing before sm_90.
__device__ __forceinline__ void let_next_grid_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Waits until the grid before has ended and all it wrote can be read.
__device__ __forceinline__ void wait_for_grid_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// 2^x to 2 units in the last place; results below 2^-126 are 0.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / x to 1 unit in the last place; of infinity 0.
__device__ __forceinline__ float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace tessera::prim::cuda
