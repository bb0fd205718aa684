// Gradients of the weights of a group and of their scales: products over the rows of the group.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/kernels/grouped_matmul/cpu/float_rows.hpp>
#include <tessera/kernels/grouped_matmul/cpu/pack.hpp>
#include <tessera/kernels/grouped_matmul/cpu/row_blocks.hpp>
#include <tessera/kernels/grouped_matmul/cpu/tile_memory.hpp>
#include <tessera/kernels/grouped_matmul/cpu/tile_product.hpp>
#include <tessera/kernels/grouped_matmul/cpu/weights.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::grouped_matmul::cpu {

/// P = lhs^T d_out over the rows of a group, laid out as rhs: d_rhs = P scale, and d_rhs_scale =
/// the sums of P rhs over the blocks of the summed axis. A work item has a block of columns n and,
/// where nobody asks for d_rhs_scale, a block of k of a group; else all of k, whose blocks it adds
/// up.
template <class Kernel>
class weight_gradients {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;

 public:
  weight_gradients(const grouped_matmul_kernel_args& args, int threads)
      : args_(args),
        k_block_(columns_of_k(args, threads)),
        n_block_(args.transpose_rhs ? shape::block_m
                                    : wide_block(args, args.n, has_scales() ? 1 : args.k, threads)),
        k_blocks_(blocks_of<Kernel>(args.k, k_block_)),
        n_blocks_(blocks_of<Kernel>(args.n, n_block_)),
        parts_(has_scales() ? 1 : k_blocks_) {}

  bool wanted() const { return args_.d_rhs.data != nullptr || has_scales(); }
  std::int64_t items() const { return wanted() ? args_.groups * parts_ * n_blocks_ : 0; }

  void run(std::int64_t item, const row_lists<Kernel>& lists,
           const tile_memory<Kernel>& memory) const {
    const std::int64_t group = item / (parts_ * n_blocks_);
    const part_of_axis n = part_of<Kernel>(item % n_blocks_, n_block_, args_.n);
    const row_range rows = lists.ranges[group];
    if (has_scales() && (rows.count() == 0 || args_.k == 0)) clear_scales(group, n);
    const std::int64_t part = item / n_blocks_ % parts_;
    const std::int64_t first = has_scales() ? 0 : part;
    const std::int64_t last = has_scales() ? k_blocks_ : part + 1;
    std::fill_n(sums_in(memory), shape::up_to(n.count, shape::width), 0.0f);
    for (std::int64_t block = first; block < last; ++block) {
      const part_of_axis k = part_of<Kernel>(block, k_block_, args_.k);
      if (rows.count() == 0) {
        clear(group, k, n);
      } else {
        multiply(group, rows, k, n, memory);
        store(group, k, n, memory);
      }
    }
  }

 private:
  /// Elements of k of a tile. Gradients of scales are summed over k tile by tile: where those are
  /// wanted this size does not depend on threads.
  static std::int64_t columns_of_k(const grouped_matmul_kernel_args& args, int threads) {
    if (!args.transpose_rhs) return shape::block_m;
    if (args.d_rhs_scale.data != nullptr) return shape::block_n;
    return wide_block(args, args.k, args.n, threads);
  }
  /// Columns of a tile, of `columns` in all beside `rows` of each matrix in tiles of their own; an
  /// item that has all of k, for gradients of scales, is one of them.
  static std::int64_t wide_block(const grouped_matmul_kernel_args& args, std::int64_t columns,
                                 std::int64_t rows, int threads) {
    return item_columns(shape::config, columns,
                        args.groups * blocks_of<Kernel>(rows, shape::block_m), threads);
  }
  bool has_scales() const { return args_.d_rhs_scale.data != nullptr; }
  /// Gradients of scales, summed so far.
  static float* sums_in(const tile_memory<Kernel>& memory) { return memory.rows[2]; }

  part_of_axis stored_rows(part_of_axis k, part_of_axis n) const {
    return args_.transpose_rhs ? n : k;
  }
  part_of_axis stored_columns(part_of_axis k, part_of_axis n) const {
    return args_.transpose_rhs ? k : n;
  }

  void multiply(std::int64_t group, row_range rows, part_of_axis k, part_of_axis n,
                const tile_memory<Kernel>& memory) const {
    const part_of_axis a = stored_rows(k, n), b = stored_columns(k, n);
    const grouped_matrix& of_a = args_.transpose_rhs ? args_.d_out : args_.lhs;
    const grouped_matrix& of_b = args_.transpose_rhs ? args_.lhs : args_.d_out;
    const auto with_rows = [&](const grouped_matrix& of, std::int64_t row, std::int64_t column,
                               const auto& pack) {
      with_operand<Kernel>(of, [&]<class Element>(const Element* elements) {
        pack(prim::strided_rows<Element>{elements + of.offset(group, row, column), of.row});
      });
    };
    multiply_tile<Kernel>(
        {a.count, b.count, true}, rows.count(), memory, tile_sums{memory.c, memory.c_stride},
        [&](part_of_axis depth, part_of_axis of_block, float* to) {
          with_rows(of_a, rows.begin + depth.first, a.first + of_block.first,
                    [&](const auto& from) {
                      pack_a_columns<Kernel>(from, of_block.count, depth.count, to);
                    });
        },
        [&](part_of_axis depth, part_of_axis inside, const typename shape::panels& packed) {
          with_rows(of_b, rows.begin + depth.first, b.first + inside.first, [&](const auto& from) {
            pack_b_rows<Kernel>(from, inside.count, depth.count, packed);
          });
        },
        [&](part_of_axis depth, part_of_axis inside) {
          return lines_ahead::of(of_b, group, {rows.begin + depth.first, depth.count},
                                 {b.first + inside.first, inside.count});
        });
  }

  void store(std::int64_t group, part_of_axis k, part_of_axis n,
             const tile_memory<Kernel>& memory) const {
    const part_of_axis rows = stored_rows(k, n), inside = stored_columns(k, n);
    const weights<Kernel> w(args_, group);
    float* const stored = memory.rows[0];
    float* const partial = memory.rows[1];
    std::fill_n(partial, shape::up_to(n.count, shape::width), 0.0f);
    for (int row = 0; row < rows.count; ++row) {
      float* const product = memory.c + std::int64_t{row} * memory.c_stride;
      if (has_scales()) {
        w.load_stored(rows.first + row, inside, stored);
        if (args_.transpose_rhs) {
          add_along(group, rows.first + row, inside, product, stored, sums_in(memory)[row]);
        } else {
          add_product<Kernel>(partial, product, stored, inside.count);
          add_across(group, rows.first + row, row + 1 == rows.count, n, partial, sums_in(memory));
        }
      }
      if (args_.d_rhs.data == nullptr) continue;
      if (args_.rhs_scale.data != nullptr) {
        w.scale_stored(rows.first + row, inside, stored, product);
      }
      prim::store_row<isa_type>(args_.d_rhs,
                                args_.d_rhs.offset(group, rows.first + row, inside.first),
                                inside.count, product);
    }
  }

  /// A stored row is along the summed axis: sums of its blocks, of which the last may go on.
  void add_along(std::int64_t group, std::int64_t column, part_of_axis k, const float* product,
                 const float* stored, float& sum) const {
    const std::int64_t size = args_.k / args_.scale_blocks;
    for_each_scale_block(k, size, [&](std::int64_t block, int first, int count) {
      sum += dot_of_part<Kernel>(product + first, stored + first, count);
      if (k.first + first + count != (block + 1) * size) return;
      prim::store_element<isa_type>(args_.d_rhs_scale,
                                    args_.d_rhs_scale.offset(group, block, column), sum);
      sum = 0;
    });
  }

  /// A stored row lies across it: `partial` has the sums of a tile's rows so far, and is added up
  /// where a tile or a block ends.
  void add_across(std::int64_t group, std::int64_t row, bool tile_ends, part_of_axis n,
                  float* partial, float* sums) const {
    const std::int64_t size = args_.k / args_.scale_blocks;
    const bool block_ends = (row + 1) % size == 0;
    if (!block_ends && !tile_ends) return;
    add_row<Kernel>(sums, partial, n.count);
    std::fill_n(partial, shape::up_to(n.count, shape::width), 0.0f);
    if (!block_ends) return;
    prim::store_row<isa_type>(args_.d_rhs_scale,
                              args_.d_rhs_scale.offset(group, row / size, n.first), n.count, sums);
    std::fill_n(sums, shape::up_to(n.count, shape::width), 0.0f);
  }

  /// A matrix that no row is multiplied by.
  void clear(std::int64_t group, part_of_axis k, part_of_axis n) const {
    if (args_.d_rhs.data == nullptr) return;
    const part_of_axis rows = stored_rows(k, n), inside = stored_columns(k, n);
    for (int row = 0; row < rows.count; ++row) {
      clear_row<Kernel>(args_.d_rhs, args_.d_rhs.offset(group, rows.first + row, inside.first),
                        inside.count);
    }
  }
  void clear_scales(std::int64_t group, part_of_axis n) const {
    for (std::int64_t block = 0; block < args_.scale_blocks; ++block) {
      clear_row<Kernel>(args_.d_rhs_scale, args_.d_rhs_scale.offset(group, block, n.first),
                        n.count);
    }
  }

  const grouped_matmul_kernel_args& args_;
  std::int64_t k_block_, n_block_;  ///< elements of k and of n of a tile
  std::int64_t k_blocks_, n_blocks_;
  std::int64_t parts_;  ///< work items that k is cut into
};

}  // namespace tessera::kernels::grouped_matmul::cpu
