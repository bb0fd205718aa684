// A tile of a product: the summed axis in blocks, each packed and multiplied in register tiles.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/kernels/grouped_matmul/cpu/lines_ahead.hpp>
#include <tessera/kernels/grouped_matmul/cpu/parts.hpp>
#include <tessera/kernels/grouped_matmul/cpu/tile_memory.hpp>
#include <tessera/kernels/grouped_matmul/cpu/tile_register_product.hpp>
#include <tessera/kernels/grouped_matmul/cpu/tile_sums.hpp>
#include <tessera/kernels/grouped_matmul/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/product.hpp>

namespace tessera::kernels::grouped_matmul::cpu {

/// Register tiles of so many rows and packed columns, at least.
template <class Kernel>
std::int64_t register_tiles(int rows, const typename traits<Kernel>::panels& b) {
  using shape = traits<Kernel>;
  return std::int64_t{(rows + shape::mr - 1) / shape::mr} * (b.columns / shape::panels::nr);
}

/// Sums that a register tile adds to were last used a block of the summed axis ago: they come from
/// far, and are asked for row by row beside the products.
template <class Kernel, int Rows, int Vectors>
class sums_ahead {
 public:
  TESSERA_INLINE sums_ahead(const float* c, std::int64_t c_stride, int steps)
      : c_(c), stride_(c_stride), each_step_((Rows + steps - 1) / steps) {}
  TESSERA_INLINE void step() {
    for (int i = 0; i < each_step_ && left_ > 0; ++i, --left_, c_ += stride_) {
      TESSERA_UNROLL
      for (int v = 0; v < Vectors; ++v) TESSERA_PREFETCH(c_ + v * traits<Kernel>::width);
    }
  }

 private:
  const float* c_;
  std::int64_t stride_;
  int each_step_;
  int left_ = Rows;
};

/// The packed columns of to = A B, or of to = C + A B; `ahead` goes on beside.
template <prim::product_kind Kind, class Kernel>
void multiply_block(const float* a, int rows, const typename traits<Kernel>::panels& b, int columns,
                    tile_sums c, tile_sums to, lines_ahead& ahead) {
  using shape = traits<Kernel>;
  const int steps = std::max(prim::steps_beside(b.words, prim::any_length), 1);
  prim::for_each_register_tile<shape::mr>(
      rows, b, {0, shape::up_to(columns, shape::width)},
      [&]<int Rows, int Vectors, int BStride>(int row, int column) {
        using kernel =
            prim::microkernel<typename shape::isa_type, typename shape::words, Rows, Vectors>;
        const float* const of_a = a + std::int64_t{row} * shape::a_stride;
        float* const result = to.data + row * to.stride + column;
        if constexpr (Kind == prim::product_kind::overwrite) {
          kernel::template multiply<shape::a_stride, BStride>(of_a, b.at(0, column), b.words,
                                                              prim::any_length, result, to.stride,
                                                              [&ahead] { ahead.step(); });
        } else {
          const float* const of_c = c.data + row * c.stride + column;
          sums_ahead<Kernel, Rows, Vectors> sums(of_c, c.stride, steps);
          kernel::template add<shape::a_stride, BStride>(
              of_a, b.at(0, column), b.words, of_c, c.stride, result, to.stride, [&ahead, &sums] {
                ahead.step();
                sums.step();
              });
        }
      });
}

/// result = A B over `depth` elements of the summed axis. `pack_a(part, rows, to)` packs a part of
/// it of rows of A, `pack_b(part, columns, panels)` of some columns of B, whose lines are
/// `lines_of_b(part, columns)`. What a sum is made of and in which order does not depend on the
/// tile: a block is one running sum, and blocks are added one after the other, in memory.c but for
/// the last one.
template <class Kernel, class PackA, class PackB, class LinesOfB>
void multiply_tile(tile_size size, std::int64_t depth, const tile_memory<Kernel>& memory,
                   tile_sums result, const PackA& pack_a, const PackB& pack_b,
                   const LinesOfB& lines_of_b) {
  using shape = traits<Kernel>;
  if (depth == 0) {
    for (int row = 0; row < size.rows; ++row) {
      std::fill_n(result.data + row * result.stride, size.columns, 0.0f);
    }
  }
  if constexpr (shape::has_tiles) {
    return multiply_on_tiles(size, depth, memory, result, pack_a, pack_b);
  }
  const auto part_at = [&](std::int64_t first) {
    return part_of<Kernel>(first / shape::block_k, shape::block_k, depth);
  };
  const auto columns_at = [&](int first) {
    return part_of_axis{first, std::min(size.columns - first, shape::block_n)};
  };
  for (std::int64_t first = 0; first < depth; first += shape::block_k) {
    const part_of_axis part = part_at(first);
    pack_a(part, part_of_axis{0, size.rows}, memory.a);
    for (int column = 0; column < size.columns; column += shape::block_n) {
      const part_of_axis columns = columns_at(column);
      const typename shape::panels b{memory.b, prim::words_for<typename shape::words>(part.count),
                                     shape::up_to(columns.count, shape::panels::nr)};
      pack_b(part, columns, b);
      lines_ahead ahead;
      if (column + shape::block_n < size.columns) {
        ahead = lines_of_b(part, columns_at(column + shape::block_n));
      } else if (first + shape::block_k < depth) {
        ahead = lines_of_b(part_at(first + shape::block_k), columns_at(0));
      }
      ahead.spread(register_tiles<Kernel>(size.rows, b) *
                   prim::steps_beside(b.words, prim::any_length));
      const auto multiply = [&]<prim::product_kind Kind>() {
        const bool is_last = first + shape::block_k >= depth;
        const tile_sums c{memory.c + column, memory.c_stride};
        const tile_sums to = is_last ? tile_sums{result.data + column, result.stride} : c;
        multiply_block<Kind, Kernel>(memory.a, size.rows, b, columns.count, c, to, ahead);
      };
      if (first == 0) {
        multiply.template operator()<prim::product_kind::overwrite>();
      } else {
        multiply.template operator()<prim::product_kind::add>();
      }
    }
  }
}

}  // namespace tessera::kernels::grouped_matmul::cpu
