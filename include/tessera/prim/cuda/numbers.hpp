// Numbers of any floating type on the device, and their sum.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/prim/cuda/element_cast.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::prim::cuda {

/// Calls body with the memory as elements of the type, which is f32, f16 or bf16.
template <class Data, class Body>
__device__ __forceinline__ auto with_elements(Data* data, dtype type, const Body& body) {
  const auto as = [&]<class Element>(Element*) {
    using element = std::conditional_t<std::is_const_v<Data>, const Element, Element>;
    return body(static_cast<element*>(data));
  };
  if (type == dtype::f32) return as(static_cast<float*>(nullptr));
  if (type == dtype::f16) return as(static_cast<f16*>(nullptr));
  return as(static_cast<bf16*>(nullptr));
}

__device__ __forceinline__ float number_at(const void* data, dtype type, std::int64_t offset) {
  return with_elements(data, type,
                       [offset](const auto* elements) { return float_of(elements[offset]); });
}
__device__ __forceinline__ void put_number(void* data, dtype type, std::int64_t offset, float x) {
  with_elements(data, type, [&](auto* elements) {
    elements[offset] = prim::nearest<std::remove_pointer_t<decltype(elements)>>(x);
  });
}

__device__ __forceinline__ float sum_of_warp(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(all_lanes, x, step);
  return x;
}

}  // namespace tessera::prim::cuda
