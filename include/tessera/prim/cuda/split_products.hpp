// Matrix products of f32 elements on tf32 units (PTX mma.sync m16n8k8, sm_80 on). Each element is
// the sum of two tf32 numbers of 11 bits, and three of the four products of parts are added up:
// what is left out is below 2^-22 of the product.
//
// H. Ootomo, R. Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing
// the FP32 theoretical peak performance", arXiv:2203.03341: why sums of small parts are kept apart,
// and why long sums must be added outside of the unit, which rounds toward zero.
//
// Lane l = 4 g + t holds, of each operand:
//
// | operand | register | rows | columns |
// |---|---|---|---|
// | A 16x8 (row, k) | 0, 1, 2, 3 | g, g + 8, g, g + 8 | t; + 4 in registers 2 and 3 |
// | B 8x8 (k, column) | 0, 1 | t; + 4 in register 1 | g |
// | C 16x8 (row, column) | as in matrix_unit.hpp | | |
//
// `load_matrices` fills A and two B side by side from f32 tiles, with the addresses for tiles of
// 16-bit elements of twice the width.
#pragma once

#include <cstdint>

#include <tessera/prim/cuda/matrix_unit.hpp>

namespace tessera::prim::cuda {

/// An operand of `Registers` f32 elements a lane, as two tf32 parts.
template <int Registers>
struct split_fragment {
  std::uint32_t high[Registers];
  std::uint32_t low[Registers];
};

/// Splits f32 bits: `high` is rounded to nearest (ties away from 0); the unit reads the upper 19
/// bits of `low`.
__device__ __forceinline__ void split(std::uint32_t bits, std::uint32_t& high, std::uint32_t& low) {
  high = (bits + 0x1000u) & 0xffffe000u;
  low = __float_as_uint(__fsub_rn(__uint_as_float(bits), __uint_as_float(high)));
}

template <int Registers>
__device__ __forceinline__ split_fragment<Registers> split_of(
    const std::uint32_t (&bits)[Registers]) {
  split_fragment<Registers> parts;
#pragma unroll
  for (int i = 0; i < Registers; ++i) split(bits[i], parts.high[i], parts.low[i]);
  return parts;
}

/// c += a b of tf32 parts; registers `First` and `First` + 1 of b.
template <int First, int Registers>
__device__ __forceinline__ void multiply_add_tf32(accumulator& c, const std::uint32_t (&a)[4],
                                                  const std::uint32_t (&b)[Registers]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c.at[0]), "+f"(c.at[1]), "+f"(c.at[2]), "+f"(c.at[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[First]), "r"(b[First + 1]));
}

}  // namespace tessera::prim::cuda
