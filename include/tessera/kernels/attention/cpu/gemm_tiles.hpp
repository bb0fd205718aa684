// The two products of up to 32 rows with a packed tile of keys on AMX tiles, two rows and two
// columns of them at a time. Operands lie as they do for VDPBF16PS: rows of A are words side by
// side, and a word of a panel of B is a row of a tile. Rows behind the last are zeros (`load_q`).
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/kernels/attention/cpu/prefill_scratch.hpp>
#include <tessera/kernels/attention/cpu/query_rows.hpp>
#include <tessera/kernels/attention/cpu/score_mod.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/tiles.hpp>
#include <tessera/prim/cpu/line_queue.hpp>

namespace tessera::kernels::attention::cpu {

/// Tiles of so many rows: one or two.
TESSERA_INLINE int row_tiles(int rows) {
  return rows > prim::tile_rows ? 2 : 1;
}
/// Calls body.template operator()<RowTiles>().
template <class Body>
TESSERA_INLINE void with_row_tiles(int rows, const Body& body) {
  if (row_tiles(rows) == 2) {
    body.template operator()<2>();
  } else {
    body.template operator()<1>();
  }
}

/// What the loops of a product go over: whole tiles of columns of C and of words that are summed.
struct tile_extents {
  int columns;
  int words;

  /// Products of tiles for so many rows: as often the loops call `beside()`.
  TESSERA_INLINE int products(int rows) const {
    return row_tiles(rows) * (columns / prim::tile_width) * (words / prim::tile_width);
  }
};
template <class Kernel>
TESSERA_INLINE tile_extents qk_extents(const attention_kernel_args& args, const key_columns& used) {
  using shape = traits<Kernel>;
  return {used.high - used.low, shape::words_of_head(shape::head_dim(args))};
}
template <class Kernel>
TESSERA_INLINE tile_extents pv_extents(const attention_kernel_args& args, const key_columns& used) {
  using shape = traits<Kernel>;
  return {round_up(shape::v_head_dim(args), prim::tile_width),
          (used.high - used.low) / shape::words::k_pack};
}

/// scores[rows, low ... high) = Q K^T. `beside()` goes on beside each product.
template <class Kernel, class Beside>
TESSERA_INLINE void gemm_qk_tiles(const attention_kernel_args& args, row_tile rows, float* k_panels,
                                  const key_columns& used, const prefill_scratch<Kernel>& scratch,
                                  prim::line_queue& lines, const Beside& beside) {
  using shape = traits<Kernel>;
  const typename shape::panels k = shape::k_panels(args, k_panels);
  const tile_extents extents = qk_extents<Kernel>(args, used);
  const float* const q = scratch.q_row(rows.first);
  with_row_tiles(
      rows.rows, [&]<int RowTiles>() __attribute__((always_inline)) {
        prim::tile_product<prim::tiles, RowTiles, 2> product;
        for (int at = 0; at < extents.columns; at += shape::nr) {
          const int column = used.low + at;
          lines.step();
          const typename decltype(product)::operands from{q, shape::q_stride, k.at(0, column),
                                                          shape::nr};
          const typename decltype(product)::block to{scratch.scores + column, shape::score_stride};
          product.template begin<false>(from, to, to, beside);
          product.add_each(product.next(from), extents.words - prim::tile_width, beside);
        }
        product.finish();
      });
}

/// out[rows] *= rescale, where some factor is not 1.
template <class Kernel>
void rescale_rows(row_tile rows, int columns, const prefill_scratch<Kernel>& scratch) {
  using vec = typename traits<Kernel>::vec;
  for (int r = 0; r < rows.rows; ++r) {
    if (scratch.rescale[r] == 1.0f) continue;
    const auto factor = vec::broadcast(scratch.rescale[r]);
    float* const out = scratch.out_row(rows.first + r);
    for (int c = 0; c < columns; c += vec::width) {
      vec::store(out + c, vec::mul(vec::load(out + c), factor));
    }
  }
}

/// out[rows] = rescale out[rows] + P V; `beside` as above.
template <class Kernel, class Beside>
TESSERA_INLINE void gemm_pv_tiles(const attention_kernel_args& args, row_tile rows, float* v_panels,
                                  const key_columns& used, const prefill_scratch<Kernel>& scratch,
                                  prim::line_queue& lines, const Beside& beside) {
  using shape = traits<Kernel>;
  const typename shape::panels v = shape::v_panels(args, v_panels, used.count);
  const tile_extents extents = pv_extents<Kernel>(args, used);
  const int low = used.low / shape::words::k_pack;
  const float* const p = scratch.scores + low;
  float* const out = scratch.out_row(rows.first);
  rescale_rows<Kernel>(rows, extents.columns, scratch);
  with_row_tiles(
      rows.rows, [&]<int RowTiles>() __attribute__((always_inline)) {
        const auto add_to = [&](auto& product, int column) __attribute__((always_inline)) {
          lines.step();
          const typename std::remove_reference_t<decltype(product)>::operands from{
              p, shape::score_stride, v.at(low, column), v.stride(column)};
          const typename std::remove_reference_t<decltype(product)>::block to{out + column,
                                                                              scratch.out_stride()};
          product.template begin<true>(from, to, to, beside);
          product.add_each(product.next(from), extents.words - prim::tile_width, beside);
        };
        int column = 0;
        if (extents.columns >= shape::nr) {
          prim::tile_product<prim::tiles, RowTiles, 2> product;
          for (; column + shape::nr <= extents.columns; column += shape::nr) {
            add_to(product, column);
          }
          product.finish();
        }
        if (column < extents.columns) {
          prim::tile_product<prim::tiles, RowTiles, 1> product;
          add_to(product, column);
          product.finish();
        }
      });
}

}  // namespace tessera::kernels::attention::cpu
