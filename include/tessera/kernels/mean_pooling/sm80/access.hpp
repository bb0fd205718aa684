// Elements of a token as a thread reads and writes them: 16 bytes at a time, or one by one.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <tessera/families/mean_pooling/config.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::mean_pooling::sm80 {

template <class Element, int Count>
struct alignas(Count * sizeof(Element)) elements {
  Element x[Count];
};

/// What one access moves.
template <int Bytes>
using word_of = std::conditional_t<Bytes == 16, uint4,
                                   std::conditional_t<Bytes == 4, std::uint32_t, unsigned short>>;

/// Reads what no one reads again.
template <int Count, class Element>
__device__ __forceinline__ elements<Element, Count> load_once(const Element* from) {
  using word = word_of<sizeof(elements<Element, Count>)>;
  return std::bit_cast<elements<Element, Count>>(__ldcs(reinterpret_cast<const word*>(from)));
}

template <pooling_stores Stores, class Element, int Count>
__device__ __forceinline__ void store(Element* to, const elements<Element, Count>& from) {
  using word = word_of<sizeof(from)>;
  if constexpr (Stores == pooling_stores::streaming) {
    __stcs(reinterpret_cast<word*>(to), std::bit_cast<word>(from));
  } else {
    *reinterpret_cast<word*>(to) = std::bit_cast<word>(from);
  }
}

__device__ __forceinline__ float to_float(float x) {
  return x;
}
template <class Half>
__device__ __forceinline__ float to_float(Half x) {
  return prim::cuda::half_words<Half>::unpack(x.bits);
}

template <class Element>
__device__ __forceinline__ Element rounded_to(float x) {
  if constexpr (std::is_same_v<Element, float>) {
    return x;
  } else {
    Element half;
    half.bits = static_cast<std::uint16_t>(prim::cuda::half_words<Element>::pack(x, 0.0f));
    return half;
  }
}

}  // namespace tessera::kernels::mean_pooling::sm80
