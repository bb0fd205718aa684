// A tile of keys on its way into panels.
//
// Packing is memory latency: where heads lie side by side, no hardware prefetcher follows the rows
// of one, and rows a power of two apart share few cache sets. So a tile is packed a few keys at a
// time between the register tiles of the one before, each group of keys fetched one group ahead
// (prim/cpu/line_queue.hpp).
#pragma once

#include <atomic>
#include <cstdint>

#include <tessera/kernels/attention/common/key_source.hpp>
#include <tessera/kernels/attention/common/key_tiles.hpp>
#include <tessera/kernels/attention/cpu/prefill_scratch.hpp>
#include <tessera/kernels/attention/cpu/query_rows.hpp>
#include <tessera/kernels/attention/cpu/shared_tiles.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/pack.hpp>
#include <tessera/prim/cpu/line_queue.hpp>

namespace tessera::kernels::attention::cpu {

/// A tile of keys, its panels, and how far they are packed. Panels of an item's own lie in its
/// scratch memory; of shared ones, the columns [packed, taken) are this thread's to pack.
template <class Kernel>
struct packed_tile {
  key_tile keys;
  prim::row_range used;  ///< the columns that some row sees; of shared panels all
  float* k = nullptr;    ///< panels
  float* v = nullptr;
  tile_progress<Kernel>* progress = nullptr;  ///< of shared panels
  bool* nonfinite = nullptr;  ///< [count]: keys whose values are kept out of the panels
  int packed = 0;             ///< columns up to here are
  int queued = 0;             ///< columns up to here are on their way
  int taken = 0;
  int buffer = 0;      ///< of the scratch memory
  bool finite = true;  ///< no key's values are kept out of the panels

  TESSERA_INLINE bool empty() const { return keys.empty(); }
  TESSERA_INLINE bool shared() const { return progress != nullptr; }
};

/// Packs the tiles of one item from `Source`, or with the other threads of its head those that they
/// share.
template <class Kernel, class Hooks, class Source>
class tile_packer {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;
  using words = typename shape::words;
  using tile_type = packed_tile<Kernel>;

 public:
  tile_packer(const query_rows<Kernel, Hooks>& rows, const Source& source,
              const prefill_scratch<Kernel>& scratch, const head_tiles<Kernel>& shared)
      : rows_(rows), source_(source), scratch_(scratch), shared_(shared) {}

  /// Nothing of the tile is packed yet, or by others.
  tile_type begin(const key_tile& keys, int buffer) const {
    tile_type tile;
    tile.keys = keys;
    tile.buffer = buffer;
    if (keys.empty()) return tile;
    if (shared_.any()) {
      const std::int64_t index = keys.key0 / shape::block_kv;
      tile.progress = shared_.progress_of(index);
      tile.k = shared_.k(index);
      tile.v = shared_.v(rows_.args(), index);
      tile.used = {0, keys.count};
      return tile;
    }
    tile.k = scratch_.k[buffer];
    tile.v = scratch_.v[buffer];
    tile.nonfinite = scratch_.nonfinite[buffer];
    const prim::key_interval used = prim::intersection(rows_.keys_of_all().some, keys.keys());
    tile.used = {static_cast<int>(used.begin - keys.key0) / shape::key_step * shape::key_step,
                 static_cast<int>(used.end - keys.key0)};
    tile.packed = tile.queued = tile.used.begin;
    return tile;
  }

  /// Asks for what the tile needs while rows [first, end) of the item go through the one before.
  void queue(tile_type& tile, int first, int end, prim::line_queue& lines) const {
    if (tile.empty()) return;
    const int column = columns_after(tile, end);
    if (!tile.shared()) {
      queue_up_to(tile, column + group, lines);
    } else if (tile.progress->columns.is_done(tile.used.end)) {
      queue_panels(tile, columns_after(tile, first), column, lines);
    } else {
      const int missing = column - tile.progress->columns.taken();
      if (missing > 0) take(tile, round_up(missing, piece));
      queue_up_to(tile, tile.taken, lines);
    }
  }

  /// Packs what is due when `done` rows of the item are through the tile before.
  void pack_after(tile_type& tile, int done) const {
    pack_up_to(tile, tile.shared() ? tile.taken : columns_after(tile, done));
  }

  /// Packs the rest, each group of keys fetched while the one before is packed. Of shared panels
  /// what nobody has taken, and then waits for the others.
  void pack_all(tile_type& tile) const {
    pack_taken(tile, tile.shared() ? tile.taken : tile.used.end);
    if (!tile.shared()) return;
    auto& columns = tile.progress->columns;
    while (columns.taken() < tile.used.end) {
      take(tile, piece);
      pack_taken(tile, tile.taken);
    }
    columns.wait(tile.used.end);
    tile.finite = !tile.progress->nonfinite.load(std::memory_order_relaxed);
  }

  /// Values that are not finite must not meet the weight 0 of a hidden key: such keys leave the
  /// panels, whoever sees them, so that which rows an item has changes no bit. Shared panels stay
  /// as they are, and the item has its own of the values.
  void keep_nonfinite_out(tile_type& tile) const {
    if (tile.finite) return;
    tile.v = scratch_.v[tile.buffer];
    tile.nonfinite = scratch_.nonfinite[tile.buffer];
    for (int begin = tile.used.begin; begin < tile.used.end; begin += group) {
      const prim::row_range keys{begin,
                                 begin + group < tile.used.end ? begin + group : tile.used.end};
      prim::find_nonfinite<isa_type>(values_of(tile, keys), keys, v_head_dim(), tile.nonfinite);
      static_cast<void>(pack_values(tile, keys, tile.nonfinite));
    }
    clear_values_behind(tile);
  }

 private:
  /// Keys that are packed in one go, and that a thread takes: whole cache lines of the panels.
  static constexpr int group = shape::width;
  static constexpr int piece = group < 16 ? 16 : group;

  TESSERA_INLINE int head_dim() const { return shape::head_dim(rows_.args()); }
  TESSERA_INLINE int v_head_dim() const { return shape::v_head_dim(rows_.args()); }

  /// The column up to which a tile is packed when `done` rows of the item are through the one
  /// before.
  int columns_after(const tile_type& tile, int done) const {
    const int groups = (tile.used.end - tile.used.begin + group - 1) / group;
    return tile.used.begin + groups * done / rows_.count() * group;
  }

  /// Takes the next columns that no thread has.
  void take(tile_type& tile, int columns) const {
    const int first = tile.progress->columns.take(columns);
    const auto bounded = [&](int column) {
      return column < tile.used.end ? column : tile.used.end;
    };
    tile.packed = tile.queued = bounded(first);
    tile.taken = bounded(first + columns);
  }

  void queue_up_to(tile_type& tile, int column, prim::line_queue& lines) const {
    constexpr std::int64_t size = sizeof(typename decltype(source_.k)::stored);
    const auto keys = source_.k.places(tile.keys.key0, rows_.kv_head());
    const auto values = source_.v.places(tile.keys.key0, rows_.kv_head());
    for (; tile.queued < column && tile.queued < tile.used.end; ++tile.queued) {
      lines.add(keys.row(tile.queued), head_dim() * size);
      lines.add(values.row(tile.queued), v_head_dim() * size);
    }
  }

  /// Asks for that part of packed panels.
  void queue_panels(const tile_type& tile, int begin, int end, prim::line_queue& lines) const {
    const auto keys = shape::k_panels(rows_.args(), tile.k);
    const auto values = shape::v_panels(rows_.args(), tile.v, tile.keys.count);
    const int columns = round_up(tile.used.end, group);
    const auto add = [&](const float* data, std::int64_t floats) {
      const float* const from = data + floats * begin / columns;
      lines.add(from, (data + floats * end / columns - from) * static_cast<int>(sizeof(float)));
    };
    add(tile.k, std::int64_t{keys.words} * columns);
    add(tile.v, std::int64_t{values.words} * values.columns);
  }

  /// Packs the columns below `column`, group by group.
  void pack_up_to(tile_type& tile, int column) const {
    const int end = column < tile.used.end ? column : tile.used.end;
    const int first = tile.packed;
    while (tile.packed < end) {
      const int next = tile.packed + group < end ? tile.packed + group : end;
      prim::pack_transposed<words>(
          source_.k.load(tile.keys.key0, tile.packed, next, rows_.kv_head()), {tile.packed, next},
          head_dim(), shape::k_panels(rows_.args(), tile.k));
      if (!pack_values(tile, {tile.packed, next}, nullptr)) tile.finite = false;
      tile.packed = next;
      if (next == tile.used.end) clear_values_behind(tile);
    }
    if (!tile.shared() || tile.packed == first) return;
    if (!tile.finite) tile.progress->nonfinite.store(true, std::memory_order_relaxed);
    tile.progress->columns.finish(tile.packed - first);
  }
  /// The same, fetched on the way.
  void pack_taken(tile_type& tile, int column) const {
    prim::line_queue lines;
    lines.clear();
    queue_up_to(tile, tile.packed + group, lines);
    while (tile.packed < column) {
      lines.spread(1);
      lines.step();
      lines.clear();
      queue_up_to(tile, tile.queued + group < column ? tile.queued + group : column, lines);
      pack_up_to(tile, tile.packed + group < column ? tile.packed + group : column);
    }
  }

  /// At most a group. Returns false if some value is not finite.
  bool pack_values(const tile_type& tile, prim::row_range keys, const bool* skip) const {
    return prim::pack_rows<words>(values_of(tile, keys), keys, v_head_dim(), skip,
                                  shape::v_panels(rows_.args(), tile.v, tile.keys.count));
  }
  /// Values that products read behind the last key, where they read more than a group.
  void clear_values_behind(const tile_type& tile) const {
    if constexpr (shape::key_step > group) {
      prim::clear_rows<words>(
          {round_up(tile.used.end, group), round_up(tile.used.end, shape::key_step)},
          shape::v_panels(rows_.args(), tile.v, tile.keys.count));
    }
  }
  /// At most a group.
  auto values_of(const tile_type& tile, prim::row_range keys) const {
    return source_.v.load(tile.keys.key0, keys.begin, keys.end, rows_.kv_head());
  }

  const query_rows<Kernel, Hooks>& rows_;
  const Source& source_;
  const prefill_scratch<Kernel>& scratch_;
  head_tiles<Kernel> shared_;
};

}  // namespace tessera::kernels::attention::cpu
