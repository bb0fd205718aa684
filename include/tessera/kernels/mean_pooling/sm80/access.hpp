// Elements of a token as a thread reads and writes them: 16 bytes at a time, or one by one.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include <tessera/families/mean_pooling/config.hpp>

namespace tessera::kernels::mean_pooling::sm80 {

template <class Element, int Count>
struct alignas(Count * sizeof(Element)) elements {
  Element x[Count];
};

/// What one access moves.
template <int Bytes>
using word_of = std::conditional_t<Bytes == 16, uint4,
                                   std::conditional_t<Bytes == 4, std::uint32_t, unsigned short>>;

/// Reads what no one reads again; zeros if not `wanted`. Predicated in PTX: the compiler makes a
/// branch of `if`, in which it waits for the elements before it asks for the next ones.
__device__ __forceinline__ void load_once(uint4& word, const void* from, int wanted) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n"
      "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
      "@p ld.global.cs.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
      : "=&r"(word.x), "=&r"(word.y), "=&r"(word.z), "=&r"(word.w)
      : "l"(from), "r"(wanted));
}
__device__ __forceinline__ void load_once(std::uint32_t& word, const void* from, int wanted) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nmov.b32 %0, 0;\n@p ld.global.cs.b32 %0, [%1];\n}"
      : "=&r"(word)
      : "l"(from), "r"(wanted));
}
__device__ __forceinline__ void load_once(unsigned short& word, const void* from, int wanted) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nmov.b16 %0, 0;\n@p ld.global.cs.b16 %0, [%1];\n}"
      : "=&h"(word)
      : "l"(from), "r"(wanted));
}
template <int Count, class Element>
__device__ __forceinline__ elements<Element, Count> load_once_if(bool wanted, const Element* from) {
  word_of<sizeof(elements<Element, Count>)> word;
  load_once(word, from, wanted ? 1 : 0);
  return std::bit_cast<elements<Element, Count>>(word);
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

}  // namespace tessera::kernels::mean_pooling::sm80
