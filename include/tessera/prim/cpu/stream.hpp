// Stores past the caches: for outputs that are larger than the caches and not read again soon. They
// do not read the memory they overwrite, which ordinary stores do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/cpu/isa.hpp>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace tessera::prim {

/// `stream<Isa>::copy` writes past the caches where the instruction set can, in whole aligned
/// blocks; `fence` orders what it wrote before later stores of the thread.
template <class Isa>
struct stream;

template <>
struct stream<isa::generic> {
  static TESSERA_INLINE void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
  }
  static TESSERA_INLINE void fence() {}
};

/// The bytes before the first multiple of `Block`, at most `bytes`.
template <class Isa, std::size_t Block>
TESSERA_INLINE std::size_t bytes_to_boundary(const std::byte* to, std::size_t bytes) {
  const std::size_t past = reinterpret_cast<std::uintptr_t>(to) % Block;
  const std::size_t head = past == 0 ? 0 : Block - past;
  return head < bytes ? head : bytes;
}

#if defined(__AVX2__)
template <>
struct stream<isa::avx2> {
  static TESSERA_INLINE void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    constexpr std::size_t block = sizeof(__m256i);
    std::size_t at = bytes_to_boundary<isa::avx2, block>(to, bytes);
    std::memcpy(to, from, at);
    for (; at + block <= bytes; at += block) {
      const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at));
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at), x);
    }
    std::memcpy(to + at, from + at, bytes - at);
  }
  static TESSERA_INLINE void fence() { _mm_sfence(); }
};
#endif

#if defined(__AVX512F__)
template <>
struct stream<isa::avx512> {
  static TESSERA_INLINE void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    constexpr std::size_t block = sizeof(__m512i);
    std::size_t at = bytes_to_boundary<isa::avx512, block>(to, bytes);
    std::memcpy(to, from, at);
    for (; at + block <= bytes; at += block) {
      const __m512i x = _mm512_loadu_si512(from + at);
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), x);
    }
    std::memcpy(to + at, from + at, bytes - at);
  }
  static TESSERA_INLINE void fence() { _mm_sfence(); }
};

template <>
struct stream<isa::avx512_vnni> : stream<isa::avx512> {};
template <>
struct stream<isa::avx512_bf16> : stream<isa::avx512> {};
#endif

}  // namespace tessera::prim
