// A tile of a product of i8 with scales, by instructions for products of bytes: sums of elements
// that share their scales are whole numbers, and are scaled and added as floats. Where rows and
// columns have one scale each, sums stay whole numbers to the end.
//
// VPDPBUSD multiplies signed bytes by unsigned ones. Elements of rhs are read 128 greater, and sums
// begin with what that adds to them: -128 times the elements of lhs. Nothing is rounded until then.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/kernels/grouped_matmul/cpu/byte_scales.hpp>
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
               const tile_memory<Kernel>& memory, tile_sums result)
      : args_(args), rows_(rows), columns_(columns), memory_(memory), result_(result) {}

  /// result = the product.
  void run() const {
    if (!stays_whole()) std::fill_n(memory_.c, rows_.rows * memory_.c_stride, 0.0f);
    if (!has_blocks())
      load_scales_of_columns<Kernel>(args_, rows_.group, columns_, memory_.rows[0]);
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
                     (stays_whole() ? steps_of(b) : blocks_of<Kernel>(b.words, words_together())));
        if (!stays_whole()) {
          add(depth, columns, b, ahead);
        } else {
          add_whole(depth, columns, b, ahead);
        }
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
  bool stays_whole() const { return sums_stay_whole(args_); }
  /// Words of the summed axis that share scales, in a block of it.
  int words_together() const {
    return (has_blocks() ? scale_block : shape::block_k) / words::k_pack;
  }

  prim::strided_rows<prim::raised_byte> rhs_rows(std::int64_t column, std::int64_t first) const {
    return {static_cast<const prim::raised_byte*>(args_.rhs.data) +
                args_.rhs.offset(rows_.group, column, first),
            args_.rhs.row};
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

  /// Calls body.template operator()<Rows, Vectors, BStride>(row, column, its words of A, its
  /// elements of c) for each register tile of some columns.
  template <class Body>
  void for_each_tile(part_of_axis columns, const typename shape::panels& b,
                     const Body& body) const {
    const std::int64_t stride = memory_.c_stride, inside = columns.first - columns_.first;
    prim::for_each_register_tile<shape::mr>(
        static_cast<int>(rows_.rows), b, {0, shape::up_to(columns.count, shape::width)},
        [&]<int Rows, int Vectors, int BStride>(int row, int column) {
          body.template operator()<Rows, Vectors, BStride>(
              row, column, memory_.a + std::int64_t{row} * shape::a_stride,
              memory_.c + row * stride + inside + column);
        });
  }
  static int steps_of(const typename shape::panels& b) {
    return static_cast<int>(blocks_of<Kernel>(b.words, prim::words_beside));
  }
  /// What sums over a part of the summed axis begin with, of rows from `row` on.
  TESSERA_INLINE auto starts(int part, int row) const {
    return [of_rows = memory_.starts + std::int64_t{part} * shape::block_m + row](int r, int) {
      return vec::broadcast(of_rows[r]);
    };
  }

  /// c += A B, a block of the summed axis. The parts of it one after the other: a tile of c stays
  /// in the first-level cache meanwhile.
  void add(part_of_axis depth, part_of_axis columns, const typename shape::panels& b,
           lines_ahead& ahead) const {
    const std::int64_t stride = memory_.c_stride, inside = columns.first - columns_.first;
    for_each_tile(
        columns, b,
        [&]<int Rows, int Vectors, int BStride>(int row, int column, const float* a, float* c) {
          sums_ahead<Kernel, Rows, Vectors>(c, stride, 1).step();
          const auto add_parts = [&](const auto& factors_of) {
            const int together = words_together();
            for (int word = 0, part = 0; word < b.words; word += together, ++part) {
              const auto factor =
                  factors_of(memory_.scales + std::int64_t{part} * shape::block_m + row, part);
              ahead.step();
              prim::microkernel<isa_type, words, Rows, Vectors>::template sum_from<shape::a_stride,
                                                                                   BStride>(
                  starts(part, row), a + word, b.at(word, column),
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

  /// The same in whole numbers, which the last block of the summed axis scales.
  void add_whole(part_of_axis depth, part_of_axis columns, const typename shape::panels& b,
                 lines_ahead& ahead) const {
    const std::int64_t stride = memory_.c_stride, inside = columns.first - columns_.first;
    const bool is_first = depth.first == 0, is_last = depth.first + depth.count == args_.k;
    for_each_tile(
        columns, b,
        [&]<int Rows, int Vectors, int BStride>(int row, int column, const float* a, float* c) {
          const auto start = starts(0, row);
          sums_ahead<Kernel, Rows, Vectors> sums(c, stride, steps_of(b));
          const auto from_start_on = [&](const auto& begin) {
            const auto sum = [&](const auto& finish) {
              prim::microkernel<isa_type, words, Rows, Vectors>::template sum_from<shape::a_stride,
                                                                                   BStride>(
                  begin, a, b.at(0, column), b.words, finish, [&] {
                    ahead.step();
                    sums.step();
                  });
            };
            if (is_last) {
              const row_factors factor{memory_.scales + row, memory_.rows[0] + inside + column};
              float* const to = result_.data + row * result_.stride + inside + column;
              sum([to, by = result_.stride, factor](int r, int v, reg total) {
                vec::store(to + r * by + v * vec::width,
                           vec::mul(words::float_of_sum(total), factor(r, v)));
              });
            } else {
              sum([c, stride](int r, int v, reg total) {
                vec::store(c + r * stride + v * vec::width, total);
              });
            }
          };
          if (is_first) {
            from_start_on(start);
          } else {
            from_start_on([c, stride, start](int r, int v) {
              return words::add(vec::load(c + r * stride + v * vec::width), start(r, v));
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
  tile_sums result_;  ///< memory_.c, unless `stays_whole`
};

}  // namespace tessera::kernels::grouped_matmul::cpu
