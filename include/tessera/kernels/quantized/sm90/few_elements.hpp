// Codes of 4 bits as elements of f16, exactly, in one to three instructions for two, and elements
// of x as f16 whatever they are stored as: a power of two brings the largest of some to 2^14, so
// that nothing is lost that a float sum would keep.
#pragma once

#include <cstdint>

#include <tessera/kernels/quantized/sm90/streamed_codes.hpp>

namespace tessera::kernels::quantized::sm90 {

/// The highest bit of each byte of `signs`, the others of `below`. (Written out: nvcc 13.0 makes
/// two instructions of it.)
__device__ __forceinline__ std::uint32_t with_signs_of(std::uint32_t signs, std::uint32_t below) {
  std::uint32_t word;
  asm("lop3.b32 %0, %1, %2, 0x80808080, 0xe4;" : "=r"(word) : "r"(signs), "r"(below));
  return word;
}

/// Eight codes as elements of f16: pair i has codes i and i + 4, odd pairs of whole numbers 16
/// times as large. Whole numbers are the lowest bits of a mantissa; of E2M1 exponent and mantissa
/// lie where those of f16 end and begin.
template <thin_code Code>
__device__ __forceinline__ void few_elements(std::uint32_t word, std::uint32_t (&pairs)[4]) {
  if constexpr (Code == thin_code::whole4) {
    const std::uint32_t above = word >> 8;
    pairs[0] = word & 0x000f000fu;
    pairs[1] = word & 0x00f000f0u;
    pairs[2] = above & 0x000f000fu;
    pairs[3] = above & 0x00f000f0u;
  } else {
    static_assert(Code == thin_code::e2m1);
    const std::uint32_t odd = with_signs_of(word, word >> 3);
    const std::uint32_t even = with_signs_of(word << 4, word << 1);
    pairs[0] = even << 8 & 0x8e008e00u;
    pairs[1] = odd << 8 & 0x8e008e00u;
    pairs[2] = even & 0x8e008e00u;
    pairs[3] = odd & 0x8e008e00u;
  }
}

/// What elements of x that meet odd pairs are multiplied by.
template <thin_code Code>
inline constexpr float odd_pair_factor = Code == thin_code::whole4 ? 0x1p-4f : 1.0f;
/// What a code stands for is its element times this.
template <thin_code Code>
inline constexpr float few_factor = Code == thin_code::whole4 ? 0x1p24f : 0x1p14f;

/// Row of the matrix unit's tile to row of eight outputs: lanes that load 8 bytes of swizzled lines
/// together have different banks.
__device__ __forceinline__ unsigned bank_row(unsigned row) {
  return row % 4 * 2 + row / 4;
}

/// Eight elements of x as floats.
template <class Element>
__device__ __forceinline__ void unpack_eight(const std::uint32_t (&words)[4], float (&x)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    x[i] = prim::cuda::half_words<Element>::unpack(
        static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16)));
  }
}

__device__ __forceinline__ float largest_finite(const float (&x)[8]) {
  float most = 0.0f;
#pragma unroll
  for (float number : x) most = fmaxf(most, fabsf(number) < INFINITY ? fabsf(number) : 0.0f);
  return most;
}

/// Powers of two: `up` brings the largest of some numbers to 2^14 or below, `down` back.
struct row_scale {
  float up, down;
  __device__ __forceinline__ explicit row_scale(float largest) {
    const int exponent = max(static_cast<int>(__float_as_uint(largest) >> 23) - 127, -112);
    up = __uint_as_float(static_cast<std::uint32_t>(127 + 14 - exponent) << 23);
    down = __uint_as_float(static_cast<std::uint32_t>(127 - 14 + exponent) << 23);
  }
};

}  // namespace tessera::kernels::quantized::sm90
