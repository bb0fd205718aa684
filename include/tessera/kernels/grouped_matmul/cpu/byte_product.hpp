// A tile of a product of i8 with scales, by instructions for products of bytes: sums of elements
// that share their scales are whole numbers, and are scaled and added as floats.
//
// VPDPBUSD multiplies signed bytes by unsigned ones. Elements of rhs are read 128 greater, and sums
// begin with what that adds to them: -128 times the elements of lhs. Nothing is rounded until then.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/kernels/grouped_matmul/cpu/parts.hpp>
#include <tessera/kernels/grouped_matmul/cpu/row_blocks.hpp>
#include <tessera/kernels/grouped_matmul/cpu/tile_memory.hpp>
#include <tessera/kernels/grouped_matmul/cpu/tile_product.hpp>
#include <tessera/kernels/grouped_matmul/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/pack.hpp>
#include <tessera/prim/cpu/gemm/product.hpp>
#include <tessera/prim/cpu/gemm/rows.hpp>

namespace tessera::kernels::grouped_matmul::cpu {

/// Rows of lhs times columns of a matrix.
template <class Kernel>
class byte_product {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;
  using words = typename shape::words;
  using vec = typename shape::vec;
  using reg = typename vec::reg;

 public:
  byte_product(const grouped_matmul_kernel_args& args, const row_block& rows, part_of_axis columns,
               const tile_memory<Kernel>& memory)
      : args_(args), rows_(rows), columns_(columns), memory_(memory) {}

  /// memory.c = the product.
  void run() const {
    std::fill_n(memory_.c, rows_.rows * memory_.c_stride, 0.0f);
    if (!has_blocks()) load_scales_of_columns();
    for (std::int64_t first = 0; first < args_.k; first += shape::block_k) {
      const part_of_axis depth = depth_at(first);
      pack_lhs(depth);
      for (int column = 0; column < columns_.count; column += shape::block_n) {
        const part_of_axis columns = columns_at(column);
        const typename shape::panels b{memory_.b, prim::words_for<words>(depth.count),
                                       shape::up_to(columns.count, shape::panels::nr)};
        prim::pack_transposed<words>(rhs_rows(columns.first, first), {0, columns.count},
                                     depth.count, b);
        lines_ahead ahead = lines_behind(first, column);
        ahead.spread(register_tiles<Kernel>(static_cast<int>(rows_.rows), b) *
                     blocks_of<Kernel>(b.words, words_together()));
        add(depth, columns, b, ahead);
      }
    }
  }

 private:
  part_of_axis depth_at(std::int64_t first) const {
    return part_of<Kernel>(first / shape::block_k, shape::block_k, args_.k);
  }
  /// Columns that are packed together, from one of this tile's on.
  part_of_axis columns_at(int first) const {
    return {columns_.first + first, std::min(columns_.count - first, shape::block_n)};
  }
  /// Of rhs, what is packed after the block at `first` and `column`.
  lines_ahead lines_behind(std::int64_t first, int column) const {
    const auto lines = [&](std::int64_t at, int from) {
      return lines_ahead::of(args_.rhs, rows_.group, columns_at(from), depth_at(at));
    };
    if (column + shape::block_n < columns_.count) return lines(first, column + shape::block_n);
    return first + shape::block_k < args_.k ? lines(first + shape::block_k, 0) : lines_ahead{};
  }
  bool has_blocks() const { return args_.scales == product_scales::blocks; }
  /// Words of the summed axis that share scales, in a block of it.
  int words_together() const {
    return (has_blocks() ? scale_block : shape::block_k) / words::k_pack;
  }

  prim::strided_rows<prim::raised_byte> rhs_rows(std::int64_t column, std::int64_t first) const {
    return {static_cast<const prim::raised_byte*>(args_.rhs.data) +
                args_.rhs.offset(rows_.group, column, first),
            args_.rhs.row};
  }

  /// The scale of each column, zeros up to a whole panel.
  void load_scales_of_columns() const {
    const auto* const scales = static_cast<const float*>(args_.rhs_scale.data);
    float* const to = memory_.rows[0];
    std::fill_n(to, shape::up_to(columns_.count, shape::panels::nr), 0.0f);
    for (int column = 0; column < columns_.count; ++column) {
      to[column] = scales[args_.rhs_scale.offset(rows_.group, columns_.first + column, 0)];
    }
  }

  /// Rows of lhs become rows of A, with the scales of their parts and what sums over those begin
  /// with.
  void pack_lhs(part_of_axis depth) const {
    const auto* const elements = static_cast<const std::int8_t*>(args_.lhs.data);
    const auto* const scales = static_cast<const float*>(args_.lhs_scale.data);
    const int all = prim::words_for<words>(depth.count), together = words_together();
    for (std::int64_t row = 0; row < rows_.rows; ++row) {
      float* const a = memory_.a + row * shape::a_stride;
      const std::int64_t of_tensor = rows_.first + row;
      prim::pack_a<isa_type, words>(
          elements + args_.lhs.offset(rows_.group, of_tensor, depth.first), depth.count, a);
      const float* const own =
          scales + args_.lhs_scale.offset(rows_.group, of_tensor,
                                          has_blocks() ? depth.first / scale_block : 0);
      for (int word = 0, part = 0; word < all; word += together, ++part) {
        const int end = std::min(word + together, all);
        reg sum = vec::zero();
        for (int at = word; at < end; at += vec::width) {
          sum = words::multiply_add(vec::load(a + at), words::most_raised(), sum);
        }
        const std::int32_t start = -words::total(sum);
        const std::int64_t place = std::int64_t{part} * shape::block_m + row;
        std::memcpy(memory_.starts + place, &start, sizeof start);
        memory_.scales[place] = own[part];
      }
    }
  }

  /// c += A B, a block of the summed axis. The parts of it one after the other: a tile of c stays
  /// in the first-level cache meanwhile.
  void add(part_of_axis depth, part_of_axis columns, const typename shape::panels& b,
           lines_ahead& ahead) const {
    const std::int64_t stride = memory_.c_stride, inside = columns.first - columns_.first;
    prim::for_each_register_tile<shape::mr>(
        static_cast<int>(rows_.rows), b, {0, shape::up_to(columns.count, shape::width)},
        [&]<int Rows, int Vectors, int BStride>(int row, int column) {
          using kernel = prim::microkernel<isa_type, words, Rows, Vectors>;
          const float* const a = memory_.a + std::int64_t{row} * shape::a_stride;
          float* const c = memory_.c + row * stride + inside + column;
          ask_for_sums<Kernel, Rows, Vectors>(c, stride);
          const auto add_parts = [&](const auto& factors_of) {
            const int together = words_together();
            for (int word = 0, part = 0; word < b.words; word += together, ++part) {
              const std::int64_t place = std::int64_t{part} * shape::block_m + row;
              const auto factor = factors_of(memory_.scales + place, part);
              ahead.step();
              kernel::template sum_from<shape::a_stride, BStride>(
                  memory_.starts + place, a + word, b.at(word, column),
                  std::min(together, b.words - word), [c, stride, factor](int r, int v, reg sum) {
                    float* const to = c + r * stride + v * vec::width;
                    vec::store(to, vec::fma(words::float_of_sum(sum), factor(r, v), vec::load(to)));
                  });
            }
          };
          if (has_blocks()) {
            add_parts([&](const float* scales, int part) {
              return block_factors<Rows>(
                  scales, *scale_of_block(columns.first + column, depth.first, part));
            });
          } else {
            add_parts([&](const float* scales, int) {
              return row_factors{scales, memory_.rows[0] + inside + column};
            });
          }
        });
  }

  const float* scale_of_block(std::int64_t column, std::int64_t first, int part) const {
    return static_cast<const float*>(args_.rhs_scale.data) +
           args_.rhs_scale.offset(rows_.group, column / scale_block, first / scale_block + part);
  }

  /// What the sums of a row are multiplied by: all columns of a register tile have one scale.
  template <int Rows>
  struct block_factors {
    float of_row[Rows];

    TESSERA_INLINE block_factors(const float* scales, float by) {
      TESSERA_UNROLL
      for (int r = 0; r < Rows; ++r) of_row[r] = scales[r] * by;
    }
    TESSERA_INLINE reg operator()(int r, int) const { return vec::broadcast(of_row[r]); }
  };
  /// The same where each column has its own.
  struct row_factors {
    const float* of_rows;
    const float* of_columns;

    TESSERA_INLINE reg operator()(int r, int v) const {
      return vec::mul(vec::broadcast(of_rows[r]), vec::load(of_columns + v * vec::width));
    }
  };

  const grouped_matmul_kernel_args& args_;
  const row_block& rows_;
  part_of_axis columns_;
  const tile_memory<Kernel>& memory_;
};

}  // namespace tessera::kernels::grouped_matmul::cpu
