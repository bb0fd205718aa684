// Rows of floats as elements of storage types and back, on the device: the bits of
// prim/common/element_cast.hpp, by the conversions of the hardware where it has them.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/prim/common/element_cast.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/float8.hpp>

namespace tessera::prim::cuda {

/// `Count` elements, aligned to their size: what one thread reads or writes at once.
template <class Element, int Count>
struct alignas(Count * sizeof(Element) < 16 ? Count * sizeof(Element) : 16) element_vector {
  Element x[Count];
};

/// The value of an element.
template <class Element>
__device__ __forceinline__ float float_of(Element x) {
  if constexpr (std::is_same_v<Element, f16> || std::is_same_v<Element, bf16>) {
    return half_words<Element>::unpack(x.bits);
  } else {
    return prim::float_of(x);
  }
}

/// The nearest element. `prim::nearest` has all of its steps in each place where a kernel rounds.
template <class Element>
__device__ __forceinline__ Element nearest(float x) {
  if constexpr (std::is_same_v<Element, f16> || std::is_same_v<Element, bf16>) {
    Element half;
    half.bits = static_cast<std::uint16_t>(half_words<Element>::pack(x, 0.0f));
    return half;
  } else {
    return prim::nearest<Element>(x);
  }
}

/// The values of two elements of 8 bits side by side, at a multiple of 2.
template <class Element>
__device__ __forceinline__ float2 float_pair(const Element* from) {
  static_assert(sizeof(Element) == 1);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  if constexpr (!std::is_same_v<Element, std::int8_t>) {
    const auto codes = *reinterpret_cast<const unsigned short*>(from);
    std::uint32_t halves;
    if constexpr (std::is_same_v<Element, f8_e4m3>) {
      asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(codes));
    } else {
      asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(codes));
    }
    return {half_words<f16>::unpack(static_cast<std::uint16_t>(halves)),
            half_words<f16>::unpack(static_cast<std::uint16_t>(halves >> 16))};
  }
#endif
  return {prim::float_of(from[0]), prim::float_of(from[1])};
}

/// The elements next to two values.
template <class Element>
__device__ __forceinline__ void store_pair(Element* to, float first, float second) {
  if constexpr (std::is_same_v<Element, f16> || std::is_same_v<Element, bf16>) {
    const std::uint32_t word = half_words<Element>::pack(first, second);
    to[0].bits = static_cast<std::uint16_t>(word);
    to[1].bits = static_cast<std::uint16_t>(word >> 16);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  } else if constexpr (std::is_same_v<Element, f8_e4m3> || std::is_same_v<Element, f8_e5m2>) {
    std::uint16_t word;
    if constexpr (std::is_same_v<Element, f8_e4m3>) {
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(word) : "f"(second), "f"(first));
    } else {
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(word) : "f"(second), "f"(first));
    }
    // The code of NaN is ours, whatever the hardware's is.
    to[0].bits = first == first ? static_cast<std::uint8_t>(word) : std::uint8_t{0x7f};
    to[1].bits = second == second ? static_cast<std::uint8_t>(word >> 8) : std::uint8_t{0x7f};
#endif
  } else {
    to[0] = prim::nearest<Element>(first);
    to[1] = prim::nearest<Element>(second);
  }
}

}  // namespace tessera::prim::cuda
