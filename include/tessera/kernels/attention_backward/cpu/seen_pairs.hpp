// Which rows of a block see which keys of a tile, as far as products need to know.
#pragma once

#include <concepts>

#include <tessera/kernels/attention/common/key_tiles.hpp>
#include <tessera/kernels/attention/common/sequence.hpp>
#include <tessera/kernels/attention/cpu/mask_hooks.hpp>
#include <tessera/kernels/attention/cpu/query_rows.hpp>
#include <tessera/kernels/attention/cpu/score_mod.hpp>
#include <tessera/kernels/attention_backward/cpu/traits.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cpu/gemm/pack.hpp>

namespace tessera::kernels::attention_backward::cpu {

using forward::key_columns;
using forward::row_tile;

/// What a mask functor may say besides (attention/cpu/mask_hooks.hpp). `bounds_of_seen(tile)`: keys
/// from the first to the last one that some of the tile's rows see, and how much of them.
template <class Mask>
concept bounds_seen_keys = requires(const Mask& mask, const prim::score_tile& tile) {
  { mask.bounds_of_seen(tile) } -> std::same_as<kernels::attention::cpu::key_run>;
};

/// Columns of a tile of keys that some of `rows`, which are rows of the block, see.
template <class Row>
key_columns columns_seen(const typename traits<Row>::query_rows& block, row_tile rows,
                         const kernels::attention::key_tile& tile) {
  key_columns columns = block.columns_of(rows, tile);
  if constexpr (bounds_seen_keys<decltype(traits<Row>::hooks::mask)>) {
    if (columns.seen != prim::tile_visibility::partial) return columns;
    const int group = kernels::attention::group_of(block.args());
    const int head = block.kv_head() * group;
    const prim::key_interval keys = columns.keys();
    const kernels::attention::cpu::key_run run = block.hooks().mask.bounds_of_seen(
        {block.sequence().index, head, head + group, block.query_of(rows.first),
         block.query_of(rows.end() - 1) + 1, keys.begin, keys.end});
    columns.begin = static_cast<int>(run.keys.begin - columns.key0);
    columns.end = static_cast<int>(run.keys.end - columns.key0);
    columns.low = columns.begin / traits<Row>::key_step * traits<Row>::key_step;
    columns.high = forward::round_up(columns.end, traits<Row>::key_step);
    columns.seen = run.seen;
  }
  return columns;
}

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
