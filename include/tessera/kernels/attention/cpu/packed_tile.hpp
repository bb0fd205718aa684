// A tile of keys on its way into panels.
//
// Packing is memory latency: where heads lie side by side, no hardware prefetcher follows the rows
// of one, and rows a power of two apart share few cache sets. So a tile is packed a few keys at a
// time between the register tiles of the one before, each group of keys fetched one group ahead
// (prim/cpu/line_queue.hpp).
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/common/key_source.hpp>
#include <tessera/kernels/attention/common/key_tiles.hpp>
#include <tessera/kernels/attention/cpu/prefill_scratch.hpp>
#include <tessera/kernels/attention/cpu/query_rows.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/pack.hpp>
#include <tessera/prim/cpu/line_queue.hpp>

namespace tessera::kernels::attention::cpu {

/// A tile of keys, its panels, and how far they are packed.
struct packed_tile {
  key_tile keys;
  prim::row_range used;  ///< the columns that some row sees
  int packed = 0;        ///< columns up to here are
  int queued = 0;        ///< columns up to here are on their way
  int buffer = 0;        ///< of the scratch memory
  bool whole = false;    ///< every row sees every key
  bool finite = true;    ///< no key's values are kept out of the panels

  TESSERA_INLINE bool empty() const { return keys.empty(); }
};

/// Packs the tiles of one item from `Source`.
template <class Kernel, class Hooks, class Source>
class tile_packer {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;
  using words = typename shape::words;

 public:
  tile_packer(const query_rows<Kernel, Hooks>& rows, const Source& source,
              const prefill_scratch<Kernel>& scratch)
      : rows_(rows), source_(source), scratch_(scratch) {}

  /// Nothing of the tile is packed yet.
  packed_tile begin(const key_tile& keys, int buffer) const {
    packed_tile tile;
    tile.keys = keys;
    tile.buffer = buffer;
    if (keys.empty()) return tile;
    const prim::key_interval used = prim::intersection(rows_.keys_of_all().some, keys.keys());
    tile.used = {static_cast<int>(used.begin - keys.key0) / shape::key_step * shape::key_step,
                 static_cast<int>(used.end - keys.key0)};
    tile.packed = tile.queued = tile.used.begin;
    tile.whole = rows_.all_see(keys.keys(), keys.seen);
    return tile;
  }

  /// The column up to which a tile is packed when `done` rows of the item are through the one
  /// before.
  int columns_after(const packed_tile& tile, int done) const {
    const int groups = (tile.used.end - tile.used.begin + group - 1) / group;
    return tile.used.begin + groups * done / rows_.count() * group;
  }

  /// Asks for the keys that will be packed once `done` rows are through, and for a group more.
  void queue(packed_tile& tile, int done, prim::line_queue& lines) const {
    if (!tile.empty()) queue_up_to(tile, columns_after(tile, done) + group, lines);
  }

  /// Packs the columns below `column`, group by group.
  void pack_up_to(packed_tile& tile, int column) const {
    const int end = column < tile.used.end ? column : tile.used.end;
    while (tile.packed < end) {
      const int next = tile.packed + group < end ? tile.packed + group : end;
      prim::pack_transposed<words>(
          source_.k.load(tile.keys.key0, tile.packed, next, rows_.kv_head()), {tile.packed, next},
          head_dim(), shape::k_panels(rows_.args(), scratch_.k[tile.buffer]));
      if (!pack_values(tile, {tile.packed, next}, nullptr)) tile.finite = false;
      tile.packed = next;
      if (next == tile.used.end) clear_values_behind(tile);
    }
  }

  /// Packs a whole tile, each group of keys fetched while the one before is packed.
  void pack_all(packed_tile& tile) const {
    prim::line_queue lines;
    lines.clear();
    queue_up_to(tile, tile.used.begin + group, lines);
    while (tile.packed < tile.used.end) {
      lines.spread(1);
      lines.step();
      lines.clear();
      queue_up_to(tile, tile.queued + group, lines);
      pack_up_to(tile, tile.packed + group);
    }
  }

  /// Values that are not finite must not meet a weight of 0: unless every row sees every key, such
  /// keys leave the panels.
  void keep_nonfinite_out(packed_tile& tile) const {
    if (tile.finite) return;
    tile.finite = tile.whole;
    if (tile.whole) return;
    bool* const nonfinite = scratch_.nonfinite[tile.buffer];
    for (int begin = tile.used.begin; begin < tile.used.end; begin += group) {
      const prim::row_range keys{begin,
                                 begin + group < tile.used.end ? begin + group : tile.used.end};
      prim::find_nonfinite<isa_type>(values_of(tile, keys), keys, v_head_dim(), nonfinite);
      static_cast<void>(pack_values(tile, keys, nonfinite));
    }
  }

 private:
  /// Keys that are packed in one go.
  static constexpr int group = shape::width;

  TESSERA_INLINE int head_dim() const { return shape::head_dim(rows_.args()); }
  TESSERA_INLINE int v_head_dim() const { return shape::v_head_dim(rows_.args()); }

  void queue_up_to(packed_tile& tile, int column, prim::line_queue& lines) const {
    constexpr std::int64_t size = sizeof(typename decltype(source_.k)::stored);
    const auto keys = source_.k.places(tile.keys.key0, rows_.kv_head());
    const auto values = source_.v.places(tile.keys.key0, rows_.kv_head());
    for (; tile.queued < column && tile.queued < tile.used.end; ++tile.queued) {
      lines.add(keys.row(tile.queued), head_dim() * size);
      lines.add(values.row(tile.queued), v_head_dim() * size);
    }
  }

  /// At most a group. Returns false if some value is not finite.
  bool pack_values(const packed_tile& tile, prim::row_range keys, const bool* skip) const {
    return prim::pack_rows<words>(
        values_of(tile, keys), keys, v_head_dim(), skip,
        shape::v_panels(rows_.args(), scratch_.v[tile.buffer], tile.keys.count));
  }
  /// Values that products read behind the last key, where they read more than a group.
  void clear_values_behind(const packed_tile& tile) const {
    if constexpr (shape::key_step > group) {
      prim::clear_rows<words>(
          {round_up(tile.used.end, group), round_up(tile.used.end, shape::key_step)},
          shape::v_panels(rows_.args(), scratch_.v[tile.buffer], tile.keys.count));
    }
  }
  /// At most a group.
  auto values_of(const packed_tile& tile, prim::row_range keys) const {
    return source_.v.load(tile.keys.key0, keys.begin, keys.end, rows_.kv_head());
  }

  const query_rows<Kernel, Hooks>& rows_;
  const Source& source_;
  const prefill_scratch<Kernel>& scratch_;
};

}  // namespace tessera::kernels::attention::cpu
