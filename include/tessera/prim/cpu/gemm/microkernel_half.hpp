// A microkernel whose last register of columns is half as wide.
#pragma once

#include <cstdint>

#include <tessera/prim/cpu/gemm/words.hpp>

namespace tessera::prim {

/// Registers half as wide, for columns that fill at most half of one: twice as many multiply-adds a
/// cycle.
template <class Isa>
struct half_registers {
  static constexpr bool present = false;
};
#if defined(__AVX512F__)
template <>
struct half_registers<isa::avx512> {
  static constexpr bool present = true;
  using vec = simd<isa::avx2>;
  static TESSERA_INLINE vec::reg low(simd<isa::avx512>::reg x) { return _mm512_castps512_ps256(x); }
};
#endif

/// Rows x (Vectors whole registers and half a one) accumulators of f32. One broadcast serves all of
/// a row: a tile of half registers alone is bound by its loads, one for each multiply-add.
template <class Isa, int Rows, int Vectors>
struct microkernel_and_half {
  using vec = simd<Isa>;
  using reg = typename vec::reg;
  using half_vec = typename half_registers<Isa>::vec;
  using half_reg = typename half_vec::reg;

  /// C = rescale C + A B, as `microkernel::rescale_and_add`. The whole registers of row k of B
  /// start at b + k BStride, its half register at rest + k RestStride; in C they follow each other.
  template <int AStride, int BStride, int RestStride>
  static TESSERA_INLINE void rescale_and_add(const float* TESSERA_RESTRICT a,
                                             const float* TESSERA_RESTRICT b,
                                             const float* TESSERA_RESTRICT rest, int words,
                                             int chain, const float* TESSERA_RESTRICT rescale,
                                             float* TESSERA_RESTRICT c, std::int64_t c_stride) {
    for (int done = 0; done < words; done += chain) {
      reg acc[Rows][at_least_one];
      half_reg half_acc[Rows];
      const int more = words - done < chain ? words - done : chain;
      sum<AStride, BStride, RestStride>(acc, half_acc, a + done, b + std::int64_t{done} * BStride,
                                        rest + std::int64_t{done} * RestStride, more);
      TESSERA_UNROLL
      for (int r = 0; r < Rows; ++r) {
        const both_widths factor = broadcast(done == 0 ? rescale[r] : 1.0f);
        float* at = c + r * c_stride;
        TESSERA_UNROLL
        for (int v = 0; v < Vectors; ++v, at += vec::width) {
          vec::store(at, vec::fma(vec::load(at), factor.whole, acc[r][v]));
        }
        half_vec::store(at, half_vec::fma(half_vec::load(at), factor.half, half_acc[r]));
      }
    }
  }

 private:
  static constexpr int at_least_one = Vectors + (Vectors == 0);

  struct both_widths {
    reg whole;
    half_reg half;
  };
  static TESSERA_INLINE both_widths broadcast(float x) {
    if constexpr (Vectors == 0) return {vec::zero(), half_vec::broadcast(x)};
    const reg whole = vec::broadcast(x);
    return {whole, half_registers<Isa>::low(whole)};
  }

  template <int AStride, int BStride, int RestStride>
  static TESSERA_INLINE void sum(reg (&acc)[Rows][at_least_one], half_reg (&half_acc)[Rows],
                                 const float* TESSERA_RESTRICT a, const float* TESSERA_RESTRICT b,
                                 const float* TESSERA_RESTRICT rest, int words) {
    TESSERA_UNROLL
    for (int r = 0; r < Rows; ++r) {
      TESSERA_UNROLL
      for (int v = 0; v < Vectors; ++v) acc[r][v] = vec::zero();
      half_acc[r] = half_vec::zero();
    }
    for (int k = 0; k < words; ++k) {
      reg column[at_least_one];
      TESSERA_UNROLL
      for (int v = 0; v < Vectors; ++v) column[v] = vec::load(b + v * vec::width);
      const half_reg half_column = half_vec::load(rest);
      TESSERA_UNROLL
      for (int r = 0; r < Rows; ++r) {
        const both_widths row = broadcast(a[r * AStride]);
        TESSERA_UNROLL
        for (int v = 0; v < Vectors; ++v) acc[r][v] = vec::fma(row.whole, column[v], acc[r][v]);
        half_acc[r] = half_vec::fma(row.half, half_column, half_acc[r]);
      }
      ++a;
      b += BStride;
      rest += RestStride;
    }
  }
};

}  // namespace tessera::prim
