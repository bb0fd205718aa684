// Rows times the weights of their group: out, and on the way back d_lhs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/families/grouped_matmul/epilogue.hpp>
#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/kernels/grouped_matmul/cpu/byte_product.hpp>
#include <tessera/kernels/grouped_matmul/cpu/byte_tile_product.hpp>
#include <tessera/kernels/grouped_matmul/cpu/codes.hpp>
#include <tessera/kernels/grouped_matmul/cpu/complete_row.hpp>
#include <tessera/kernels/grouped_matmul/cpu/float_rows.hpp>
#include <tessera/kernels/grouped_matmul/cpu/pack.hpp>
#include <tessera/kernels/grouped_matmul/cpu/row_blocks.hpp>
#include <tessera/kernels/grouped_matmul/cpu/tile_memory.hpp>
#include <tessera/kernels/grouped_matmul/cpu/tile_product.hpp>
#include <tessera/kernels/grouped_matmul/cpu/weights.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::grouped_matmul::cpu {

/// to = from W + bias + init, or from W^T + ...: the columns of `to` that a work item has, of a
/// block of rows.
template <class Kernel>
class row_products {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;

 public:
  /// out = lhs W + rhs_bias + out_init.
  static row_products forward(const grouped_matmul_kernel_args& args) {
    return {args, args.lhs, args.out, args.k, args.n, !args.transpose_rhs};
  }
  /// d_lhs = d_out W^T.
  static row_products backward(const grouped_matmul_kernel_args& args) {
    return {args, args.d_out, args.d_lhs, args.n, args.k, args.transpose_rhs};
  }

  /// Columns of a work item.
  std::int64_t item_columns(std::int64_t row_blocks, int threads) const {
    return tessera::item_columns(shape::config, columns_, row_blocks, threads);
  }
  std::int64_t columns() const { return columns_; }

  /// `epilogue` has the last word on elements of out before they are rounded.
  template <class Epilogue>
  void run(const row_block& rows, part_of_axis columns, const tile_memory<Kernel>& memory,
           const Epilogue& epilogue) const {
    const bool direct = std::is_same_v<Epilogue, no_epilogue> && is_complete(rows, columns);
    const tile_sums result =
        direct ? tensor_sums(rows, columns) : tile_sums{memory.c, memory.c_stride};
    if (rows.group >= 0) multiply(rows, columns, memory, result);
    if (!direct) store(rows, columns, memory, epilogue);
  }

 private:
  row_products(const grouped_matmul_kernel_args& args, const grouped_matrix& from,
               const grouped_matrix& to, std::int64_t depth, std::int64_t columns, bool across)
      : args_(args), from_(from), to_(to), depth_(depth), columns_(columns), across_(across) {}

  /// Whether products are elements of the result as they are, and whole registers of them.
  bool is_complete(const row_block& rows, part_of_axis columns) const {
    const bool adds =
        &to_ == &args_.out &&
        (args_.rhs_bias.data != nullptr || args_.out_init.data != nullptr || args_.has_epilogue());
    // Whole tiles are stored, but of whole numbers, which become floats later.
    constexpr bool tiles = shape::has_tiles && !shape::has_byte_products;
    constexpr int columns_together = tiles ? shape::panels::nr : shape::width;
    if (adds || rows.group < 0 || to_.type != dtype::f32 || columns.count % columns_together != 0 ||
        (tiles && rows.rows % prim::tile_rows != 0)) {
      return false;
    }
    if constexpr (shape::has_byte_products) return sums_stay_whole(args_);
    return true;
  }
  /// A work item's part of the result.
  tile_sums tensor_sums(const row_block& rows, part_of_axis columns) const {
    return {static_cast<float*>(to_.data) + to_.offset(rows.matrix(), rows.first, columns.first),
            to_.row};
  }

  void multiply(const row_block& rows, part_of_axis columns, const tile_memory<Kernel>& memory,
                tile_sums result) const {
    if constexpr (shape::has_byte_products && shape::has_tiles) {
      byte_tile_product<Kernel>(args_, rows, columns, memory, result).run();
    } else if constexpr (shape::has_byte_products) {
      byte_product<Kernel>(args_, rows, columns, memory, result).run();
    } else {
      multiply_elements(rows, columns, memory, result);
    }
  }

  void multiply_elements(const row_block& rows, part_of_axis columns,
                         const tile_memory<Kernel>& memory, tile_sums result) const {
    const int count = static_cast<int>(rows.rows);
    const weights<Kernel> w(args_, rows.group);
    const auto of_result = [&](part_of_axis inside) {
      return part_of_axis{columns.first + inside.first, inside.count};
    };
    multiply_tile<Kernel>(
        {count, columns.count, across_}, depth_, memory, result,
        [&](part_of_axis depth, part_of_axis of_block, float* a) {
          if constexpr (shape::words::k_pack == 1) {
            if (is_8_bits(from_.type)) return pack_codes(rows, depth, memory);
          }
          with_operand<Kernel>(from_, [&]<class Element>(const Element* elements) {
            pack_a_rows<Kernel>(
                prim::strided_rows<Element>{
                    elements + from_.offset(rows.group, rows.first + of_block.first, depth.first),
                    from_.row},
                of_block.count, depth.count, a);
          });
        },
        [&](part_of_axis depth, part_of_axis inside, const typename shape::panels& packed) {
          w.pack_b(across_, depth, of_result(inside), packed, memory);
        },
        [&](part_of_axis depth, part_of_axis inside) {
          return w.lines(across_, depth, of_result(inside));
        });
  }

  /// Rows of elements of 8 bits become rows of A.
  void pack_codes(const row_block& rows, part_of_axis depth,
                  const tile_memory<Kernel>& memory) const {
    float* const floats = memory.rows[0];
    for (int row = 0; row < static_cast<int>(rows.rows); ++row) {
      load_codes<Kernel>(from_, rows.group, rows.first + row, depth, floats);
      scale_codes<Kernel>(args_.lhs_scale, args_.scales, rows.group, rows.first + row, depth,
                          floats);
      prim::pack_a<isa_type, typename shape::words>(floats, depth.count,
                                                    memory.a + std::int64_t{row} * shape::a_stride);
    }
  }

  /// Bias, initial output and epilogue belong to `out`; rows of no group are 0 without them.
  template <class Epilogue>
  void store(const row_block& rows, part_of_axis columns, const tile_memory<Kernel>& memory,
             const Epilogue& epilogue) const {
    const bool forward = &to_ == &args_.out;
    const grouped_matrix& bias = args_.rhs_bias;
    const bool biased = forward && rows.group >= 0 && bias.data != nullptr;
    const bool initialised = forward && args_.out_init.data != nullptr;
    float* const bias_row = memory.rows[0];
    float* const init_row = memory.rows[1];
    if (biased) {
      prim::load_row<isa_type>(bias, bias.offset(rows.group, 0, columns.first), columns.count,
                               bias_row);
    }
    for (std::int64_t row = 0; row < rows.rows; ++row) {
      float* const sums = memory.c + (rows.group < 0 ? 0 : row) * memory.c_stride;
      if (rows.group < 0) std::fill_n(sums, memory.c_stride, 0.0f);
      if (biased) add_row<Kernel>(sums, bias_row, columns.count);
      if (initialised) {
        const grouped_matrix& init = args_.out_init;
        prim::load_row<isa_type>(init, init.offset(rows.matrix(), rows.first + row, columns.first),
                                 columns.count, init_row);
        add_row<Kernel>(sums, init_row, columns.count);
      }
      if (forward && rows.group >= 0 && args_.has_epilogue()) {
        complete_row<Kernel>(args_, rows.group, rows.first + row, columns, memory.rows[2], sums);
      }
      if constexpr (!std::is_same_v<Epilogue, no_epilogue>) {
        for (int column = 0; column < (rows.group < 0 ? 0 : columns.count); ++column) {
          sums[column] =
              epilogue(sums[column], {rows.group, rows.first + row, columns.first + column});
        }
      }
      const std::int64_t offset = to_.offset(rows.matrix(), rows.first + row, columns.first);
      if (size_of(to_.type) == 1) {
        store_codes(rows.matrix(), rows.first + row, columns, offset, sums);
      } else {
        prim::store_row<isa_type>(to_, offset, columns.count, sums);
      }
    }
  }

  /// Columns of a row as the codes next to them, divided by their scales.
  void store_codes(std::int64_t matrix, std::int64_t row, part_of_axis columns, std::int64_t offset,
                   float* sums) const {
    for_each_scale_block(columns, scale_block, [&](std::int64_t block, int first, int count) {
      const float scale = args_.out_code_scale.at(matrix, row, block);
      for (int at = first; at < first + count; ++at) sums[at] /= scale;
    });
    cpu::store_codes<Kernel>(to_, offset, columns.count, sums);
  }

  const grouped_matmul_kernel_args& args_;
  const grouped_matrix& from_;
  const grouped_matrix& to_;
  std::int64_t depth_, columns_;
  bool across_;  ///< the summed axis lies across the rows of rhs
};

}  // namespace tessera::kernels::grouped_matmul::cpu
