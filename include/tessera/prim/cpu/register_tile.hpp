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

/// No bound on the words of a running sum.
inline constexpr int any_length = 1 << 30;

/// Words of a running sum if `words` are cut evenly into as few as have at most `longest`.
constexpr int even_chain(int words, int longest) {
  const int chains = words / longest + (words % longest != 0);
  return chains < 2 ? longest : (words + chains - 1) / chains;
}

/// Rows x Vectors * width accumulators. `Words` says what a word of A and B holds.
template <class Isa, class Words, int Rows, int Vectors>
struct register_tile {
  using vec = simd<Isa>;
  using reg = typename vec::reg;
  static constexpr int columns = Vectors * vec::width;

  /// C = A B of at least one word, with at most `chain` in a running sum. Strides count words; rows
  /// of a panel of B may be longer than the tile is wide.
  template <int AStride, int BStride = columns>
  static TESSERA_INLINE void product(const float* TESSERA_RESTRICT a,
                                     const float* TESSERA_RESTRICT b, int words, int chain,
                                     float* TESSERA_RESTRICT c, std::int64_t c_stride) {
    const int first = words < chain ? words : chain;
    if (first == 1) {
      product_of_one_word<AStride>(a, b, c, c_stride);
    } else {
      product_of_words<AStride, BStride>(a, b, first, c, c_stride);
    }
    add_rest<AStride, BStride>(a, b, first, words, chain, c, c_stride);
  }

  /// C = row_scale C + A B, row by row, likewise.
  template <int AStride, int BStride = columns>
  static TESSERA_INLINE void update(const float* TESSERA_RESTRICT a,
                                    const float* TESSERA_RESTRICT b, int words, int chain,
                                    const float* TESSERA_RESTRICT row_scale,
                                    float* TESSERA_RESTRICT c, std::int64_t c_stride) {
    reg acc[Rows][Vectors];
    const int first = words < chain ? words : chain;
    sum<AStride, BStride>(acc, a, b, first);
    TESSERA_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const reg factor = vec::broadcast(row_scale[r]);
      TESSERA_UNROLL
      for (int v = 0; v < Vectors; ++v) {
        float* at = c + r * c_stride + v * vec::width;
        vec::store(at, vec::fma(vec::load(at), factor, acc[r][v]));
      }
    }
    add_rest<AStride, BStride>(a, b, first, words, chain, c, c_stride);
  }

 private:
  /// Out of line: what stands beside its loop would cost `product_of_words` 1 %.
  template <int AStride>
  [[gnu::noinline]] static void product_of_one_word(const float* a, const float* b, float* c,
                                                    std::int64_t c_stride) {
    for (int r = 0; r < Rows; ++r) {
      for (int v = 0; v < Vectors; ++v) {
        vec::store(c + r * c_stride + v * vec::width,
                   Words::multiply(vec::broadcast(a[r * AStride]), vec::load(b + v * vec::width)));
      }
    }
  }

  /// Two words at least. Stores stand among the last multiply-adds: in one go behind them they
  /// would hold up the next tile.
  template <int AStride, int BStride>
  static TESSERA_INLINE void product_of_words(const float* TESSERA_RESTRICT a,
                                              const float* TESSERA_RESTRICT b, int words,
                                              float* TESSERA_RESTRICT c, std::int64_t c_stride) {
    reg acc[Rows][Vectors];
    sum<AStride, BStride>(acc, a, b, words - 1);
    a += words - 1;
    b += std::int64_t{BStride} * (words - 1);
    TESSERA_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const reg row = vec::broadcast(a[r * AStride]);
      TESSERA_UNROLL
      for (int v = 0; v < Vectors; ++v) {
        vec::store(c + r * c_stride + v * vec::width,
                   Words::multiply_add(row, vec::load(b + v * vec::width), acc[r][v]));
      }
    }
  }

  /// C += A B over words [done, words), chain by chain. Each is summed up by itself first: one long
  /// running sum would lose more digits.
  template <int AStride, int BStride>
  static TESSERA_INLINE void add_rest(const float* TESSERA_RESTRICT a,
                                      const float* TESSERA_RESTRICT b, int done, int words,
                                      int chain, float* TESSERA_RESTRICT c, std::int64_t c_stride) {
    for (; done < words; done += chain) {
      reg acc[Rows][Vectors];
      sum<AStride, BStride>(acc, a + done, b + std::int64_t{done} * BStride,
                            words - done < chain ? words - done : chain);
      TESSERA_UNROLL
      for (int r = 0; r < Rows; ++r) {
        TESSERA_UNROLL
        for (int v = 0; v < Vectors; ++v) {
          float* at = c + r * c_stride + v * vec::width;
          vec::store(at, vec::add(vec::load(at), acc[r][v]));
        }
      }
    }
  }

  /// The products of the first word, in place of zeros and a sum.
  template <int AStride>
  static TESSERA_INLINE void multiply(reg (&acc)[Rows][Vectors], const float* TESSERA_RESTRICT a,
                                      const float* TESSERA_RESTRICT b) {
    reg column[Vectors];
    TESSERA_UNROLL
    for (int v = 0; v < Vectors; ++v) column[v] = vec::load(b + v * vec::width);
    TESSERA_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const reg row = vec::broadcast(a[r * AStride]);
      TESSERA_UNROLL
      for (int v = 0; v < Vectors; ++v) acc[r][v] = Words::multiply(row, column[v]);
    }
  }

  /// The sum over at least one word.
  template <int AStride, int BStride>
  static TESSERA_INLINE void sum(reg (&acc)[Rows][Vectors], const float* TESSERA_RESTRICT a,
                                 const float* TESSERA_RESTRICT b, int words) {
    multiply<AStride>(acc, a, b);
    for (int k = 1; k < words; ++k) {
      ++a;
      b += BStride;
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
    }
  }
};

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
struct register_tile_and_half {
  using vec = simd<Isa>;
  using reg = typename vec::reg;
  using half_vec = typename half_registers<Isa>::vec;
  using half_reg = typename half_vec::reg;
  /// C = row_scale C + A B, as `register_tile::update`. The whole registers of row k of B start at
  /// b + k BStride, its half register at rest + k RestStride; in C they follow each other.
  template <int AStride, int BStride, int RestStride>
  static TESSERA_INLINE void update(const float* TESSERA_RESTRICT a,
                                    const float* TESSERA_RESTRICT b,
                                    const float* TESSERA_RESTRICT rest, int words, int chain,
                                    const float* TESSERA_RESTRICT row_scale,
                                    float* TESSERA_RESTRICT c, std::int64_t c_stride) {
    for (int done = 0; done < words; done += chain) {
      reg acc[Rows][at_least_one];
      half_reg half_acc[Rows];
      const int more = words - done < chain ? words - done : chain;
      sum<AStride, BStride, RestStride>(acc, half_acc, a + done, b + std::int64_t{done} * BStride,
                                        rest + std::int64_t{done} * RestStride, more);
      TESSERA_UNROLL
      for (int r = 0; r < Rows; ++r) {
        const both_widths factor = broadcast(done == 0 ? row_scale[r] : 1.0f);
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
