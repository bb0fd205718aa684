// The warp-wide matrix product m16n8k16 of 16-bit elements with f32 sums (PTX mma.sync, sm_80 on)
// and the loads that fill its operands (ldmatrix).
//
// Lane l = 4 g + t holds, of each operand:
//
// | operand | register | rows | columns |
// |---|---|---|---|
// | A 16x16 (row, k) | 0, 1, 2, 3 | g, g + 8, g, g + 8 | 2t and 2t + 1; + 8 in registers 2 and 3 |
// | B 16x8 (k, column) | 0, 1 | 2t and 2t + 1; + 8 in register 1 | g |
// | C 16x8 (row, column) | 0, 1; 2, 3 | g; g + 8 | 2t, 2t + 1 |
//
// C of two neighbouring 16x8 tiles, packed to 16 bits, is A of the next product.
#pragma once

#include <cstdint>

#include <tessera/spec/dtype.hpp>

namespace tessera::prim::cuda {

/// A 16x16 operand.
struct fragment_a {
  std::uint32_t reg[4];
};

/// Two 16x8 operands side by side: columns 0 to 7 in registers 0 and 1, 8 to 15 in 2 and 3.
struct fragment_b2 {
  std::uint32_t reg[4];
};

/// A 16x8 tile of f32 sums.
struct accumulator {
  float at[4];
};

/// Loads four 8x8 tiles of 16-bit elements; lane l gives the address of row l % 8 of tile l / 8.
__device__ __forceinline__ void load_matrices(std::uint32_t (&reg)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(reg[0]), "=r"(reg[1]), "=r"(reg[2]), "=r"(reg[3])
               : "r"(address));
}

/// Stores four 8x8 matrices as `load_matrices` reads them: each lane gives the address of a row.
/// From sm_90 on.
__device__ __forceinline__ void store_matrices(std::uint32_t address,
                                               const std::uint32_t (&reg)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(reg[0]), "r"(reg[1]), "r"(reg[2]), "r"(reg[3])
               : "memory");
#endif
}

/// The same, each tile transposed.
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&reg)[4],
                                                         std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(reg[0]), "=r"(reg[1]), "=r"(reg[2]), "=r"(reg[3])
               : "r"(address));
}

/// c += a b with the first (`Half` 0) or second (1) 16x8 operand of b.
template <int Half>
__device__ __forceinline__ void multiply_add_bf16(accumulator& c, const fragment_a& a,
                                                  const fragment_b2& b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c.at[0]), "+f"(c.at[1]), "+f"(c.at[2]), "+f"(c.at[3])
      : "r"(a.reg[0]), "r"(a.reg[1]), "r"(a.reg[2]), "r"(a.reg[3]), "r"(b.reg[2 * Half]),
        "r"(b.reg[2 * Half + 1]));
}

template <int Half>
__device__ __forceinline__ void multiply_add_f16(accumulator& c, const fragment_a& a,
                                                 const fragment_b2& b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c.at[0]), "+f"(c.at[1]), "+f"(c.at[2]), "+f"(c.at[3])
      : "r"(a.reg[0]), "r"(a.reg[1]), "r"(a.reg[2]), "r"(a.reg[3]), "r"(b.reg[2 * Half]),
        "r"(b.reg[2 * Half + 1]));
}

/// Of f32 all ones: infinite or NaN.
inline constexpr std::uint32_t single_exponent = 0x7f800000u;

/// Products, packing and bits of a 16-bit element type.
template <class Element>
struct half_words;

template <>
struct half_words<bf16> {
  /// c += a b, see above.
  template <int Half>
  static __device__ __forceinline__ void multiply_add(accumulator& c, const fragment_a& a,
                                                      const fragment_b2& b) {
    multiply_add_bf16<Half>(c, a, b);
  }
  /// Both rounded to nearest even, `low` in the lower half.
  static __device__ __forceinline__ std::uint32_t pack(float low, float high) {
    std::uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
  }
  static __device__ __forceinline__ float unpack(std::uint16_t bits) {
    return __uint_as_float(static_cast<std::uint32_t>(bits) << 16);
  }
  static constexpr std::uint32_t exponent = 0x7f80u;  ///< all ones: infinite or NaN
};

template <>
struct half_words<f16> {
  template <int Half>
  static __device__ __forceinline__ void multiply_add(accumulator& c, const fragment_a& a,
                                                      const fragment_b2& b) {
    multiply_add_f16<Half>(c, a, b);
  }
  static __device__ __forceinline__ std::uint32_t pack(float low, float high) {
    std::uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
  }
  static __device__ __forceinline__ float unpack(std::uint16_t bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
  static constexpr std::uint32_t exponent = 0x7c00u;
};

/// True if an element of `word` is infinite or NaN; it holds two 16-bit elements or one of 32 bits.
template <class Element>
__device__ __forceinline__ bool any_not_finite(std::uint32_t word) {
  if constexpr (sizeof(Element) == 4) {
    return (word & single_exponent) == single_exponent;
  } else {
    constexpr std::uint32_t low = half_words<Element>::exponent;
    return (word & low) == low || (word & (low << 16)) == (low << 16);
  }
}

/// `word` with 0 in the place of elements that are infinite or NaN.
template <class Element>
__device__ __forceinline__ std::uint32_t finite_only(std::uint32_t word) {
  if constexpr (sizeof(Element) == 4) {
    return (word & single_exponent) == single_exponent ? 0 : word;
  } else {
    constexpr std::uint32_t low = half_words<Element>::exponent;
    if ((word & low) == low) word &= 0xffff0000u;
    if ((word & (low << 16)) == (low << 16)) word &= 0x0000ffffu;
    return word;
  }
}

}  // namespace tessera::prim::cuda
