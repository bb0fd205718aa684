// Which tiles of keys a block of query rows visits, and how much of each is visible. Lengths,
// diagonal and window are intervals (prim/common/visibility.hpp); masks, segments and functors are
// asked here, a tile at a time.
#pragma once

#include <cstdint>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/visibility.hpp>

namespace tessera::kernels::attention {

/// Smallest and largest id of tokens [begin, end), and whether one of them is padding (negative).
struct id_range {
  std::int32_t least = INT32_MAX;
  std::int32_t most = -1;
  bool padding = false;
};

template <class Kernel>
id_range range_of_ids(const token_ids& ids, std::int64_t entry, std::int64_t begin,
                      std::int64_t end) {
  id_range range;
  const std::int32_t* row = ids.data + entry * ids.batch;
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int32_t id = row[i * ids.row];
    if (id < 0) {
      range.padding = true;
      continue;
    }
    range.least = id < range.least ? id : range.least;
    range.most = id > range.most ? id : range.most;
  }
  return range;
}

/// The keys of the tile without those at either end whose segment no row of the tile can be in.
template <class Kernel>
prim::key_interval own_segments(const attention_kernel_args& args, const prim::score_tile& tile) {
  const id_range rows =
      range_of_ids<Kernel>(args.q_segments, tile.entry, tile.query_begin, tile.query_end);
  const token_ids& ids = args.kv_segments;
  const std::int32_t* key_ids = ids.data + tile.entry * ids.batch;
  const auto foreign = [&](std::int64_t key) {
    const std::int32_t id = key_ids[key * ids.row];
    return id < rows.least || id > rows.most;
  };
  prim::key_interval keys{tile.key_begin, tile.key_end};
  while (keys.begin < keys.end && foreign(keys.begin)) ++keys.begin;
  while (keys.begin < keys.end && foreign(keys.end - 1)) --keys.end;
  return keys;
}

template <class Kernel>
prim::tile_visibility classify_by_segments(const attention_kernel_args& args,
                                           const prim::score_tile& tile) {
  const id_range rows =
      range_of_ids<Kernel>(args.q_segments, tile.entry, tile.query_begin, tile.query_end);
  const id_range keys =
      range_of_ids<Kernel>(args.kv_segments, tile.entry, tile.key_begin, tile.key_end);
  if (rows.most < keys.least || keys.most < rows.least) return prim::tile_visibility::skip;
  const bool one_segment = rows.least == rows.most && keys.least == keys.most &&
                           rows.least == keys.least && !rows.padding && !keys.padding;
  return one_segment ? prim::tile_visibility::full : prim::tile_visibility::partial;
}

/// Whether some and whether all of `count` mask entries let a key be seen.
template <class Kernel>
TESSERA_INLINE void scan_mask(const std::uint8_t* mask, std::int64_t step, std::int64_t count,
                              bool* any, bool* all) {
  std::uint8_t some = 0;
  std::uint8_t hidden = 0;
  const auto scan = [&](std::int64_t stride) {
    for (std::int64_t j = 0; j < count; ++j) {
      some = static_cast<std::uint8_t>(some | mask[j * stride]);
      hidden = static_cast<std::uint8_t>(hidden | (mask[j * stride] == 0 ? 1 : 0));
    }
  };
  if (step == 1) {
    scan(1);  // a constant for the vectoriser
  } else {
    scan(step);
  }
  *any = *any || some != 0;
  *all = *all && hidden == 0;
}

template <class Kernel>
prim::tile_visibility classify_by_mask(const attention_kernel_args& args,
                                       const prim::score_tile& tile) {
  const score_tensor& mask = args.mask;
  const auto* base = static_cast<const std::uint8_t*>(mask.data) + tile.entry * mask.batch;
  const int head_end = mask.head == 0 ? tile.head_begin + 1 : tile.head_end;
  const std::int64_t query_end = mask.row == 0 ? tile.query_begin + 1 : tile.query_end;
  bool any = false;
  bool all = true;
  for (int head = tile.head_begin; head < head_end; ++head) {
    for (std::int64_t i = tile.query_begin; i < query_end; ++i) {
      scan_mask<Kernel>(base + head * mask.head + i * mask.row + tile.key_begin * mask.column,
                        mask.column, tile.key_end - tile.key_begin, &any, &all);
      if (any && !all) return prim::tile_visibility::partial;
    }
  }
  return all ? prim::tile_visibility::full : prim::tile_visibility::skip;
}

/// What mask tensor, segments and mask functor together leave of a tile.
template <class Kernel, class Hooks>
prim::tile_visibility classify(const attention_kernel_args& args, const Hooks& hooks,
                               const prim::score_tile& tile) {
  constexpr attention_features features = Kernel::config.features;
  auto visible = prim::tile_visibility::full;
  if constexpr (features.has(attention_feature::segments)) {
    if (args.q_segments.data != nullptr) visible = classify_by_segments<Kernel>(args, tile);
  }
  if constexpr (features.has(attention_feature::mask)) {
    if (args.mask.data != nullptr && visible != prim::tile_visibility::skip) {
      visible = both(visible, classify_by_mask<Kernel>(args, tile));
    }
  }
  if constexpr (Hooks::has_mask) {
    if constexpr (prim::classifies_tiles<decltype(hooks.mask)>) {
      visible = both(visible, hooks.mask.classify(tile));
    } else {
      visible = both(visible, prim::tile_visibility::partial);
    }
  }
  return visible;
}

/// Keys [key0, key0 + count) of a sequence, and how much of them a block of rows sees, intervals
/// aside. No keys: there is no such tile.
struct key_tile {
  std::int64_t key0 = 0;
  int count = 0;
  prim::tile_visibility seen = prim::tile_visibility::skip;

  TESSERA_INLINE bool empty() const { return count == 0; }
  TESSERA_INLINE prim::key_interval keys() const { return {key0, key0 + count}; }
};

/// The tiles of `tile_keys` keys that a block of rows visits, in order. They start at multiples of
/// tile_keys: where a block begins changes no bit of its rows.
template <class Kernel, class Hooks>
class key_tiles {
 public:
  /// `rows`: the queries and heads of the block. `visible`: the keys that some of them see.
  key_tiles(const attention_kernel_args& args, const Hooks& hooks, const prim::score_tile& rows,
            prim::key_interval visible, std::int64_t k_len, int tile_keys)
      : args_(args),
        hooks_(hooks),
        rows_(rows),
        visible_(visible),
        k_len_(k_len),
        tile_keys_(tile_keys) {}

  key_tile first() const { return from(visible_.begin / tile_keys_ * tile_keys_); }
  key_tile after(const key_tile& tile) const { return from(tile.key0 + tile_keys_); }

 private:
  /// The first tile from `key0` on that is not hidden as a whole.
  key_tile from(std::int64_t key0) const {
    for (; key0 < visible_.end; key0 += tile_keys_) {
      const std::int64_t left = k_len_ - key0;
      key_tile tile{key0, left < tile_keys_ ? static_cast<int>(left) : tile_keys_};
      prim::score_tile scores = rows_;
      scores.key_begin = key0;
      scores.key_end = key0 + tile.count;
      tile.seen = classify<Kernel>(args_, hooks_, scores);
      if (tile.seen != prim::tile_visibility::skip) return tile;
    }
    return {};
  }

  const attention_kernel_args& args_;
  const Hooks& hooks_;
  prim::score_tile rows_;
  prim::key_interval visible_;
  std::int64_t k_len_;
  int tile_keys_;
};

}  // namespace tessera::kernels::attention
