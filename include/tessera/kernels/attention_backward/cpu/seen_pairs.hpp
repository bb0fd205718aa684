// Which rows of a block see which keys of a tile, as far as products need to know.
#pragma once

#include <tessera/kernels/attention/cpu/query_rows.hpp>
#include <tessera/kernels/attention/cpu/score_mod.hpp>
#include <tessera/kernels/attention_backward/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/pack.hpp>

namespace tessera::kernels::attention_backward::cpu {

using forward::key_columns;
using forward::row_tile;

/// Columns of a tile that some row of a block sees, in whole registers.
struct seen_columns {
  int low = 0;
  int high = 0;
  TESSERA_INLINE bool empty() const { return low >= high; }
};

/// The same, and the rows that see some of each panel of columns, in whole register tiles.
template <class Row>
struct seen_pairs : seen_columns {
  static constexpr int nr = traits<Row>::nr;
  prim::row_range rows[traits<Row>::block_kv / nr] = {};

  TESSERA_INLINE void add(row_tile tile, const key_columns& used) {
    low = empty() || used.low < low ? used.low : low;
    high = used.high > high ? used.high : high;
    for (int panel = used.low / nr; panel * nr < used.high; ++panel) {
      if (rows[panel].end == 0) rows[panel].begin = tile.first;
      rows[panel].end = tile.end();
    }
  }
};

}  // namespace tessera::kernels::attention_backward::cpu
