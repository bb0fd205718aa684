// How much of a tile the tensors of a launch leave visible: masks, segments and mask functors. What
// lengths, diagonal and window leave is known from intervals (prim/common/visibility.hpp).
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/visibility.hpp>

namespace tessera::kernels::attention::cpu {

constexpr prim::tile_visibility both(prim::tile_visibility a, prim::tile_visibility b) {
  if (a == prim::tile_visibility::skip || b == prim::tile_visibility::skip) {
    return prim::tile_visibility::skip;
  }
  return a == b ? a : prim::tile_visibility::partial;
}

/// Smallest and largest id of tokens [begin, end), and whether one of them is padding (negative).
struct id_range {
  std::int32_t least = INT32_MAX;
  std::int32_t most = -1;
  bool padding = false;
};

template <class Isa>
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
template <class Isa>
prim::key_interval own_segments(const attention_kernel_args& args, const prim::score_tile& tile) {
  const id_range rows =
      range_of_ids<Isa>(args.q_segments, tile.entry, tile.query_begin, tile.query_end);
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

template <class Isa>
prim::tile_visibility classify_by_segments(const attention_kernel_args& args,
                                           const prim::score_tile& tile) {
  const id_range rows =
      range_of_ids<Isa>(args.q_segments, tile.entry, tile.query_begin, tile.query_end);
  const id_range keys =
      range_of_ids<Isa>(args.kv_segments, tile.entry, tile.key_begin, tile.key_end);
  if (rows.most < keys.least || keys.most < rows.least) return prim::tile_visibility::skip;
  const bool one_segment = rows.least == rows.most && keys.least == keys.most &&
                           rows.least == keys.least && !rows.padding && !keys.padding;
  return one_segment ? prim::tile_visibility::full : prim::tile_visibility::partial;
}

/// Whether some and whether all of `count` mask entries let a key be seen.
template <class Isa>
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

template <class Isa>
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
      scan_mask<Isa>(base + head * mask.head + i * mask.row + tile.key_begin * mask.column,
                     mask.column, tile.key_end - tile.key_begin, &any, &all);
      if (any && !all) return prim::tile_visibility::partial;
    }
  }
  return all ? prim::tile_visibility::full : prim::tile_visibility::skip;
}

/// What mask tensor, segments and mask functor together leave of a tile.
template <class Row, class Hooks>
prim::tile_visibility classify(const attention_kernel_args& args, const Hooks& hooks,
                               const prim::score_tile& tile) {
  using shape = traits<Row>;
  using isa_type = typename shape::isa_type;
  auto visible = prim::tile_visibility::full;
  if constexpr (shape::has(attention_feature::segments)) {
    if (args.q_segments.data != nullptr) visible = classify_by_segments<isa_type>(args, tile);
  }
  if constexpr (shape::has(attention_feature::mask)) {
    if (args.mask.data != nullptr && visible != prim::tile_visibility::skip) {
      visible = both(visible, classify_by_mask<isa_type>(args, tile));
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

}  // namespace tessera::kernels::attention::cpu
