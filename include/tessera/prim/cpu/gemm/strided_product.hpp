// C = A B and C += A B in f32 where rows, words and columns lie at strides known at run time: no
// operand is packed, and A may be the transpose of what lies in memory. For small products in
// scratch memory, whose operands serve once or twice; see product.hpp for large ones.
#pragma once

#include <cstdint>

#include <tessera/prim/cpu/gemm/microkernel.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::prim {

/// Operand A: element (row, word) lies at data[row * row_stride + word * word_stride].
struct strided_matrix {
  const float* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t word_stride = 1;
};

/// Operands B and C: rows of whole registers.
template <class Float>
struct strided_panel {
  Float* data = nullptr;
  std::int64_t stride = 0;
};

/// What a product does to C.
enum class strided_product_kind : std::uint8_t { overwrite, add };

namespace strided {

/// Registers beside each other and rows of a register tile: 24 accumulators of 32 registers, 12 of
/// 16.
template <class Isa>
inline constexpr int vectors = simd<Isa>::width >= 16 ? 3 : 2;
template <class Isa>
inline constexpr int rows = simd<Isa>::width >= 16  ? 8
                            : simd<Isa>::width >= 8 ? 6
                                                    : 4;

/// Rows x Vectors registers of C.
template <class Isa, strided_product_kind Kind, int Rows, int Vectors>
void multiply_tile(const strided_matrix& a, strided_panel<const float> b, int words,
                   strided_panel<float> c) {
  using vec = simd<Isa>;
  typename vec::reg sums[Rows][Vectors];
  TESSERA_UNROLL
  for (int r = 0; r < Rows; ++r) {
    TESSERA_UNROLL
    for (int v = 0; v < Vectors; ++v) sums[r][v] = vec::zero();
  }
  for (int word = 0; word < words; ++word) {
    const float* const column = a.data + word * a.word_stride;
    typename vec::reg row[Vectors];
    TESSERA_UNROLL
    for (int v = 0; v < Vectors; ++v) row[v] = vec::load(b.data + word * b.stride + v * vec::width);
    TESSERA_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const auto factor = vec::broadcast(column[r * a.row_stride]);
      TESSERA_UNROLL
      for (int v = 0; v < Vectors; ++v) sums[r][v] = vec::fma(factor, row[v], sums[r][v]);
    }
  }
  TESSERA_UNROLL
  for (int r = 0; r < Rows; ++r) {
    TESSERA_UNROLL
    for (int v = 0; v < Vectors; ++v) {
      float* const to = c.data + r * c.stride + v * vec::width;
      vec::store(
          to, Kind == strided_product_kind::add ? vec::add(vec::load(to), sums[r][v]) : sums[r][v]);
    }
  }
}

struct nothing {
  TESSERA_INLINE void operator()() const {}
};

/// Register tiles of a product.
template <class Isa>
constexpr int tiles_of(int rows_of_c, int columns) {
  constexpr int width = simd<Isa>::width, nr = vectors<Isa> * width;
  return (rows_of_c + rows<Isa> - 1) / rows<Isa> * (columns / nr + columns % nr / width);
}

}  // namespace strided

/// The first `rows` rows of C; `columns` is a multiple of the register width. `beside()` is called
/// before each register tile: the place to ask for lines.
template <class Isa, strided_product_kind Kind, class Beside = strided::nothing>
void strided_product(const strided_matrix& a, int rows, int words, strided_panel<const float> b,
                     int columns, strided_panel<float> c, const Beside& beside = {}) {
  constexpr int width = simd<Isa>::width, nr = strided::vectors<Isa> * width;
  const auto multiply = [&]<int Vectors>(int column) {
    for_each_row_tile<strided::rows<Isa>>(rows, [&]<int Rows>(int first) {
      beside();
      strided::multiply_tile<Isa, Kind, Rows, Vectors>(
          {a.data + first * a.row_stride, a.row_stride, a.word_stride}, {b.data + column, b.stride},
          words, {c.data + first * c.stride + column, c.stride});
    });
  };
  int column = 0;
  for (; column + nr <= columns; column += nr) {
    multiply.template operator()<strided::vectors<Isa>>(column);
  }
  for (; column < columns; column += width) multiply.template operator()<1>(column);
}

/// to[column][row] = from[row][column]; `rows` and `columns` are whole registers.
template <class Isa>
void transpose_rows(strided_panel<const float> from, int rows, int columns,
                    strided_panel<float> to) {
  using vec = simd<Isa>;
  for (int row = 0; row < rows; row += vec::width) {
    for (int column = 0; column < columns; column += vec::width) {
      typename vec::reg block[vec::width];
      for (int i = 0; i < vec::width; ++i) {
        block[i] = vec::load(from.data + (row + i) * from.stride + column);
      }
      vec::transpose(block);
      for (int i = 0; i < vec::width; ++i) {
        vec::store(to.data + (column + i) * to.stride + row, block[i]);
      }
    }
  }
}

}  // namespace tessera::prim
