// The weights of a matrix: rhs as it is stored, along the summed axis of a product or across it;
// whole numbers and scaled weights as floats.
#pragma once

#include <cstdint>

#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/kernels/grouped_matmul/cpu/codes.hpp>
#include <tessera/kernels/grouped_matmul/cpu/float_rows.hpp>
#include <tessera/kernels/grouped_matmul/cpu/lines_ahead.hpp>
#include <tessera/kernels/grouped_matmul/cpu/pack.hpp>
#include <tessera/kernels/grouped_matmul/cpu/parts.hpp>
#include <tessera/kernels/grouped_matmul/cpu/tile_memory.hpp>
#include <tessera/kernels/grouped_matmul/cpu/traits.hpp>
#include <tessera/prim/cpu/bytes.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::grouped_matmul::cpu {

/// rhs of one group. Its rows and columns are those of the tensor: k and n, or n and k.
template <class Kernel>
class weights {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;

 public:
  weights(const grouped_matmul_kernel_args& args, std::int64_t group)
      : args_(args), group_(group) {}

  /// Elements of the summed axis with the same scale.
  std::int64_t block_size() const { return args_.k / args_.scale_blocks; }

  /// Packs B of a product, whose summed axis is along the rows of rhs or across them.
  void pack_b(bool across, part_of_axis depth, part_of_axis columns,
              const typename shape::panels& packed, const tile_memory<Kernel>& memory) const {
    const part_of_axis rows = across ? depth : columns;
    const part_of_axis inside = across ? columns : depth;
    const auto pack = [&](const auto& from) {
      if (across) {
        pack_b_rows<Kernel>(from, columns.count, depth.count, packed);
      } else {
        pack_b_columns<Kernel>(from, columns.count, depth.count, packed);
      }
    };
    if constexpr (shape::words::k_pack == 1) {
      if (args_.rhs_scale.data != nullptr || args_.rhs.type == dtype::i8) {
        for (int row = 0; row < rows.count; ++row) {
          float* const to = memory.weights + std::int64_t{row} * memory.weights_stride;
          load_stored(rows.first + row, inside, to);
          if (args_.rhs_scale.data != nullptr) {
            scale_stored(rows.first + row, inside, memory.rows[0], to);
          }
        }
        return pack(prim::strided_rows<float>{memory.weights, memory.weights_stride});
      }
    }
    const std::int64_t first = args_.rhs.offset(group_, rows.first, inside.first);
    with_operand<Kernel>(args_.rhs, [&]<class Element>(const Element* elements) {
      pack(prim::strided_rows<Element>{elements + first, args_.rhs.row});
    });
  }

  /// What packing that reads.
  lines_ahead lines(bool across, part_of_axis depth, part_of_axis columns) const {
    const part_of_axis rows = across ? depth : columns;
    const part_of_axis inside = across ? columns : depth;
    return lines_ahead::of(args_.rhs, group_, rows, inside);
  }

  /// A part of a stored row as floats, and zeros up to a whole register.
  void load_stored(std::int64_t row, part_of_axis inside, float* to) const {
    if (args_.rhs.type == dtype::f8_e4m3 || args_.rhs.type == dtype::f8_e5m2) {
      return load_codes<Kernel>(args_.rhs, group_, row, inside, to);
    }
    const std::int64_t offset = args_.rhs.offset(group_, row, inside.first);
    if (args_.rhs.type == dtype::i8) {
      const auto* const bytes = static_cast<const std::int8_t*>(args_.rhs.data);
      return prim::load_row<isa_type>(bytes + offset, inside.count, to);
    }
    prim::load_row<isa_type>(args_.rhs, offset, inside.count, to);
  }

  /// Multiplies a part of a stored row by its scales; `scratch` has room for as many.
  void scale_stored(std::int64_t row, part_of_axis inside, float* scratch, float* to) const {
    if (args_.lhs_scale.data != nullptr) {
      const bool blocks = args_.scales == product_scales::blocks;
      return scale_codes<Kernel>(args_.rhs_scale, args_.scales, group_,
                                 blocks ? row / scale_block : row, inside, to);
    }
    if (!args_.transpose_rhs) {
      prim::load_row<isa_type>(args_.rhs_scale,
                               args_.rhs_scale.offset(group_, row / block_size(), inside.first),
                               inside.count, scratch);
      return multiply_row<Kernel>(to, scratch, inside.count);
    }
    for_each_scale_block(inside, block_size(), [&](std::int64_t block, int first, int count) {
      const std::int64_t at = args_.rhs_scale.offset(group_, block, row);
      scale_part<Kernel>(to + first, prim::element_at<isa_type>(args_.rhs_scale, at), count);
    });
  }

 private:
  const grouped_matmul_kernel_args& args_;
  std::int64_t group_;
};

}  // namespace tessera::kernels::grouped_matmul::cpu
