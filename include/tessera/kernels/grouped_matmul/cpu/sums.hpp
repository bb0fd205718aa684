// Gradients without a product: sums of d_out over the rows of a group, and d_out itself.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/kernels/grouped_matmul/cpu/float_rows.hpp>
#include <tessera/kernels/grouped_matmul/cpu/row_blocks.hpp>
#include <tessera/kernels/grouped_matmul/cpu/tile_memory.hpp>
#include <tessera/kernels/grouped_matmul/cpu/weights.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::grouped_matmul::cpu {

/// d_rhs_bias of a group. 64 rows are one running sum, or its error would grow with their number.
template <class Kernel>
void sum_bias_gradient(const grouped_matmul_kernel_args& args, std::int64_t group, row_range rows,
                       part_of_axis columns, const tile_memory<Kernel>& memory) {
  using isa_type = typename traits<Kernel>::isa_type;
  constexpr std::int64_t longest = 64;
  const int whole = traits<Kernel>::up_to(columns.count, traits<Kernel>::width);
  float *const sums = memory.rows[0], *const partial = memory.rows[1],
               *const row_of = memory.rows[2];
  std::fill_n(sums, whole, 0.0f);
  for (std::int64_t first = rows.begin; first < rows.end; first += longest) {
    std::fill_n(partial, whole, 0.0f);
    for (std::int64_t row = first; row < std::min(first + longest, rows.end); ++row) {
      prim::load_row<isa_type>(args.d_out, args.d_out.offset(group, row, columns.first),
                               columns.count, row_of);
      add_row<Kernel>(partial, row_of, columns.count);
    }
    add_row<Kernel>(sums, partial, columns.count);
  }
  prim::store_row<isa_type>(args.d_rhs_bias, args.d_rhs_bias.offset(group, 0, columns.first),
                            columns.count, sums);
}

/// d_out_init = d_out, of a block of rows.
template <class Kernel>
void copy_init_gradient(const grouped_matmul_kernel_args& args, const row_block& rows,
                        part_of_axis columns, const tile_memory<Kernel>& memory) {
  using isa_type = typename traits<Kernel>::isa_type;
  for (std::int64_t row = rows.first; row < rows.first + rows.rows; ++row) {
    prim::load_row<isa_type>(args.d_out, args.d_out.offset(rows.matrix(), row, columns.first),
                             columns.count, memory.rows[0]);
    prim::store_row<isa_type>(args.d_out_init,
                              args.d_out_init.offset(rows.matrix(), row, columns.first),
                              columns.count, memory.rows[0]);
  }
}

}  // namespace tessera::kernels::grouped_matmul::cpu
