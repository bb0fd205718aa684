// The one matrix product of the CPU kernels: a register tile of rows x vectors accumulates an outer
// product per word of the summed axis.
//
//   C[row, column] (+)= sum_k A[row, k] * B[k, column]
//
// A is row-major and broadcast from memory, B is a packed panel whose row k holds `Vectors` whole
// registers. With 14 x 2 accumulators the tile fills the 32 zmm registers (28 + 2 of B + 1 of A),
// and 28 multiply-adds share 2 + 14 loads.
#pragma once

#include <cstdint>

#include <tessera/prim/cpu/dot.hpp>

namespace tessera::prim {

/// Rows x Vectors * width accumulators. `Words` says what a word of A and B holds.
template <class Isa, class Words, int Rows, int Vectors>
struct register_tile {
  using vec = simd<Isa>;
  using reg = typename vec::reg;
  static constexpr int columns = Vectors * vec::width;

  /// C = A B. Strides count words; rows of a panel of B may be longer than the tile is wide.
  template <int AStride, int BStride = columns>
  static TESSERA_INLINE void product(const float* TESSERA_RESTRICT a,
                                     const float* TESSERA_RESTRICT b, int words,
                                     float* TESSERA_RESTRICT c, std::int64_t c_stride) {
    reg acc[Rows][Vectors];
    clear(acc);
    accumulate<AStride, BStride>(acc, a, b, words);
    TESSERA_UNROLL
    for (int r = 0; r < Rows; ++r) {
      TESSERA_UNROLL
      for (int v = 0; v < Vectors; ++v) vec::store(c + r * c_stride + v * vec::width, acc[r][v]);
    }
  }

  /// C = row_scale C + A B, row by row. The product is summed up by itself first: one long chain of
  /// sums through all calls would lose more digits.
  template <int AStride, int BStride = columns>
  static TESSERA_INLINE void update(const float* TESSERA_RESTRICT a,
                                    const float* TESSERA_RESTRICT b, int words,
                                    const float* TESSERA_RESTRICT row_scale,
                                    float* TESSERA_RESTRICT c, std::int64_t c_stride) {
    reg acc[Rows][Vectors];
    clear(acc);
    accumulate<AStride, BStride>(acc, a, b, words);
    TESSERA_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const reg factor = vec::broadcast(row_scale[r]);
      TESSERA_UNROLL
      for (int v = 0; v < Vectors; ++v) {
        float* at = c + r * c_stride + v * vec::width;
        vec::store(at, vec::fma(vec::load(at), factor, acc[r][v]));
      }
    }
  }

 private:
  static TESSERA_INLINE void clear(reg (&acc)[Rows][Vectors]) {
    TESSERA_UNROLL
    for (int r = 0; r < Rows; ++r) {
      TESSERA_UNROLL
      for (int v = 0; v < Vectors; ++v) acc[r][v] = vec::zero();
    }
  }

  template <int AStride, int BStride>
  static TESSERA_INLINE void accumulate(reg (&acc)[Rows][Vectors], const float* TESSERA_RESTRICT a,
                                        const float* TESSERA_RESTRICT b, int words) {
    for (int k = 0; k < words; ++k) {
      reg column[Vectors];
      TESSERA_UNROLL
      for (int v = 0; v < Vectors; ++v) column[v] = vec::load(b + v * vec::width);
      TESSERA_UNROLL
      for (int r = 0; r < Rows; ++r) {
        const reg row = vec::broadcast(a[r * AStride]);
        TESSERA_UNROLL
        for (int v = 0; v < Vectors; ++v) {
          acc[r][v] = Words::multiply_add(row, column[v], acc[r][v]);
        }
      }
      ++a;
      b += BStride;
    }
  }
};

/// Registers half as wide, for columns that fill at most half of one: twice as many multiply-adds a
/// cycle.
template <class Isa>
struct half_registers {
  static constexpr bool present = false;
};
template <>
struct half_registers<isa::avx512> {
  static constexpr bool present = true;
  using isa_type = isa::avx2;
  using words = f32_words<isa_type>;
};

/// Cuts `rows` into register tiles of Rows, then of the largest powers of two below, and calls
/// `visit.template operator()<TileRows>(first_row)` for each.
template <int Rows, class Visit>
TESSERA_INLINE void for_each_row_tile(int rows, const Visit& visit) {
  int first = 0;
  for (; first + Rows <= rows; first += Rows) visit.template operator()<Rows>(first);
  if constexpr (Rows > 1) {
    constexpr int next = Rows > 8 ? 8 : Rows > 4 ? 4 : Rows > 2 ? 2 : 1;
    if (first < rows) {
      for_each_row_tile<next>(rows - first, [&]<int TileRows>(int local) {
        visit.template operator()<TileRows>(first + local);
      });
    }
  }
}

}  // namespace tessera::prim
