// How a call of the mma.sync kernels (sm_80 on) is cut: work tiles, sections of heads, splits of
// the keys, and the thread blocks that combine them. Decided here and nowhere else: launch,
// workspace size, cost estimate and explain call the same functions. Host code without any CUDA
// call.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <tessera/families/attention/call_sizes_sm80.hpp>
#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/fits.hpp>
#include <tessera/families/attention/kernel_args.hpp>

namespace tessera::schedule_sm80 {

/// The work of a launch as a list that the device writes (kernels/attention/sm80/work_list.hpp):
/// how long it may become, and what it is cut by.
struct listing {
  bool used = false;
  std::int64_t entries = 0;  ///< groups of sequences, sequences, and the rows behind the last
  std::int64_t tiles = 0;    ///< of rows, for each key/value head
  std::int64_t items = 0;    ///< of these, by keys
  std::int64_t places = 0;   ///< items that leave partial results
  int slots = 1;             ///< thread blocks that run at the same time
  int least_tiles = 1;       ///< of keys, that an item has
  /// Keys that groups of sequences share are the work of the row's kernel, those that sequences
  /// have of their own of another one beside it, whose tiles are `own_config`'s.
  bool apart = false;
  std::int64_t group_items = 0;  ///< apart: of groups; `items` and `places` count all
  int group_slots = 1;           ///< and thread blocks that these become
  int place_rows = 1;            ///< rows of a place
  std::int64_t planned = 0;      ///< items, where blocks find theirs without the list
};

/// Sums over a thousand entries that each have all tiles, as numbers that only the device knows may
/// say, stay below 2^31.
inline constexpr std::int64_t most_listed_tiles = std::int64_t{1} << 20;

struct schedule {
  int row_blocks = 0;           ///< of a dense entry and key/value head
  std::int64_t work_tiles = 0;  ///< thread blocks of one split of the keys
  /// Work tiles that have rows; packed: if all sequences have the mean length.
  std::int64_t busy_tiles = 0;
  int section = 1;          ///< heads worked on at the same time
  int splits = 1;           ///< of the keys, each a thread block's work
  int parts = 1;            ///< of a split, each a warp's work (share_blocks)
  std::int64_t rows = 0;    ///< query rows of all heads
  int launches = 1;         ///< kernels one after the other: 2 if another one combines the splits
  int combine_blocks = 1;   ///< thread blocks that combine the splits of the same rows
  int slices_of_block = 1;  ///< slices of rows that each of them combines
  std::int64_t partial_rows = 0;  ///< of all splits
  listing list{};                 ///< used: instead of `work_tiles` and `splits` blocks
};

inline constexpr int most_splits = 128;
inline constexpr int most_combine_blocks = 32;
/// Of so few splits a block reads two slices at once, and half as many wait for the last one.
inline constexpr int splits_of_two_slices = 32;
/// Work tiles whose blocks can count themselves, and so combine their splits in the same launch.
inline constexpr std::int64_t most_counted_tiles = 1024;
/// A split has at least this many keys: less is not worth combining.
inline constexpr std::int64_t least_keys_per_split = 128;
/// Keys and values of the heads of a section take at most this many bytes of L2 cache.
inline constexpr std::int64_t section_bytes = std::int64_t{32} << 20;

/// Thread blocks that run at the same time.
constexpr std::int64_t slots_of(const attention_config& resolved, int multiprocessors) noexcept {
  return std::int64_t{std::max(1, multiprocessors)} * std::max(1, resolved.tiling.blocks_per_sm);
}

/// Keys of the tiles that a work tile visits, at most (packed: on average).
constexpr std::int64_t keys_of_tile(const attention_config& resolved,
                                    const call_sizes& sizes) noexcept {
  std::int64_t keys = sizes.kv_len;
  const std::int64_t rows = resolved.block_q / std::max<std::int64_t>(1, sizes.group()) + 1;
  if (sizes.keys_left < keys && sizes.keys_right < keys) {
    keys = std::min(keys, sizes.keys_left + sizes.keys_right + rows);
  }
  return (keys + resolved.block_kv - 1) / resolved.block_kv * resolved.block_kv;
}

/// The fewest splits whose last wave of thread blocks is nearly as full as that of the best number.
constexpr int splits_for(std::int64_t tiles, std::int64_t keys, std::int64_t slots) noexcept {
  if (tiles <= 0 || tiles * 10 >= slots * 8 || keys < 2 * least_keys_per_split) return 1;
  const auto most =
      static_cast<int>(std::min<std::int64_t>(most_splits, keys / least_keys_per_split));
  std::array<double, most_splits> fullness{};
  double best = 0.0;
  std::int64_t waves = 1;
  for (int splits = 1; splits <= most; ++splits) {
    const std::int64_t blocks = tiles * splits;
    if (blocks > waves * slots) ++waves;  // a split more is less than a wave more
    double& of_splits = fullness[static_cast<std::size_t>(splits - 1)];
    of_splits = static_cast<double>(blocks) / static_cast<double>(waves * slots);
    best = std::max(best, of_splits);
  }
  int splits = 1;
  while (fullness[static_cast<std::size_t>(splits - 1)] < 0.95 * best) ++splits;
  return splits;
}

/// Keys of single queries in pages, as tiles of them that a thread block has one after the other.
struct paged_keys {
  std::int64_t tiles = 0;  ///< of rows: sequences and key/value heads
  std::int64_t key_tiles = 0;
  std::int64_t bytes_of_tile = 0;  ///< of keys and values
};

/// How long splits of such keys take that all run at the same time, in microseconds as on an H200:
/// the tiles of the longest; what comes before the first; combining, of 32 splits at once. A tile
/// takes as long as what a block does with it or, where more blocks read, as the bytes of all on a
/// multiprocessor, which has `blocks` of them; near where both take as long, longer than either.
/// `parts`: warps of a block that have as many parts of a split.
constexpr double time_of_splits(const paged_keys& keys, std::int64_t splits, double blocks,
                                int parts = 1) noexcept {
  constexpr double alone = 1.5, bytes_of_us = 24600, begin = 3.0, combine = 0.6, of_32 = 0.9;
  const auto up = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  const double reading = blocks * parts * static_cast<double>(keys.bytes_of_tile) / bytes_of_us;
  // About the cube root of alone^3 + reading^3.
  const double longer = std::max(alone, reading), shorter = std::min(alone, reading);
  const double of_tile = longer + 0.26 * shorter * (shorter / longer) * (shorter / longer);
  const double time = static_cast<double>(up(keys.key_tiles, splits * parts)) * of_tile + begin;
  if (splits == 1) return time;
  const double at_once =
      parts == 1 ? static_cast<double>(up(splits, 32)) : 0.5 * static_cast<double>(up(splits, 16));
  return time + combine + of_32 * at_once;
}

/// Splits of such keys: one wave of blocks, of the same number on each multiprocessor.
constexpr int paged_splits_for(const paged_keys& keys, int multiprocessors,
                               int blocks_per_sm) noexcept {
  const std::int64_t slots = std::int64_t{multiprocessors} * blocks_per_sm;
  if (keys.tiles <= 0 || keys.tiles > slots) return 1;
  const std::int64_t most =
      std::min({std::int64_t{most_splits}, keys.key_tiles, slots / keys.tiles});
  int best = 1;
  double least = 0.0;
  for (int splits = 1; splits <= most; ++splits) {
    const std::int64_t blocks = blocks_of_fullest(keys.tiles * splits, multiprocessors);
    const double time = time_of_splits(keys, splits, static_cast<double>(blocks));
    if (splits > 1 && time >= least) continue;
    least = time;
    best = splits;
  }
  return best;
}

/// Numbers of splits up to which a warp combines four, two, and one slice of a row at a time; of
/// more splits groups of lanes have some each.
inline constexpr int few_splits = 4;
inline constexpr int some_splits = 8;
inline constexpr int many_splits = 16;
inline constexpr int groups_of_many = 4;

/// Groups of lanes that a warp is in to combine so many splits.
constexpr int groups_for(int splits) noexcept {
  return splits <= many_splits ? 1 : groups_of_many;
}

/// Slices of a row, each a warp's work: a lane has four columns.
constexpr int slices_of_row(int columns, int groups) noexcept {
  const int each = 128 / groups;
  return (columns + each - 1) / each;
}

/// Shares the combining of a work tile: between as many thread blocks as have work for a warp, if
/// all blocks of the launch run at the same time; else the last one has all, since a block that
/// waits keeps others from running.
constexpr void share_combining(schedule& cut, const attention_config& resolved,
                               const call_sizes& sizes, int multiprocessors) noexcept {
  const std::int64_t rows =
      sizes.packed ? resolved.block_q
                   : std::min<std::int64_t>(resolved.block_q, product(sizes.q_len, sizes.group()));
  const int slices =
      static_cast<int>(rows) * slices_of_row(sizes.v_head_dim, groups_for(cut.splits));
  const bool together = cut.work_tiles * cut.splits <= slots_of(resolved, multiprocessors);
  const int shared =
      cut.splits <= splits_of_two_slices ? most_combine_blocks / 2 : most_combine_blocks;
  const int most = together ? std::min(shared, cut.splits) : 1;
  const int least = std::min(slices, cut.splits <= some_splits ? 2 : 1);
  cut.slices_of_block = std::max({1, (slices + most - 1) / most, least});
  cut.combine_blocks = std::max(1, (slices + cut.slices_of_block - 1) / cut.slices_of_block);
}

/// Heads of a section. Equal sections: the blocks of a small last one would leave multiprocessors
/// idle.
constexpr int section_of(const call_sizes& sizes) noexcept {
  const std::int64_t bytes_of_head = product(sizes.kv_len, 2 * (sizes.head_dim + sizes.v_head_dim));
  const std::int64_t heads = std::max<std::int64_t>(1, product(sizes.batch, sizes.kv_heads));
  const std::int64_t most =
      std::clamp<std::int64_t>(section_bytes / std::max<std::int64_t>(1, bytes_of_head), 1, heads);
  const std::int64_t sections = (heads + most - 1) / most;
  return static_cast<int>(std::min<std::int64_t>((heads + sections - 1) / sections, INT32_MAX));
}

/// Items of a batch whose blocks find theirs: a sequence has parts of its own share of the keys
/// that it and those behind it have, of no fewer than this part of the share of all. The sum of 1 /
/// n up to it is below 4.5.
inline constexpr int least_planned_part = 32;
constexpr std::int64_t planned_items_for(std::int64_t sequences, std::int64_t heads,
                                         std::int64_t slots) noexcept {
  return sequences + 9 * slots / (2 * std::max<std::int64_t>(1, heads)) + 8;
}

/// Waves of thread blocks that a listed launch has at most beside one for each tile of rows.
inline constexpr int most_waves = 8;
/// Parts of the keys of a sequence where bits must not depend on the batch.
inline constexpr int most_invariant_splits = 32;
/// Bytes of keys that are worth a list: what it costs is a few per cent of the time to read them.
inline constexpr std::int64_t least_listed_bytes = std::int64_t{2} << 30;
inline constexpr std::int64_t bytes_of_item = 32;
inline constexpr std::int64_t bytes_of_tile = 16;

/// The tiles of a kernel that reads the keys of single queries beside a row's kernel. On
/// multiprocessors of its own, beside rows of wgmma, it reads as fast as it has blocks there: tiles
/// of half the keys leave room for ten of them.
constexpr attention_config own_config(const attention_config& row) noexcept {
  attention_config own = resolved(row);
  own.target = backend::cuda_sm80;
  own.phase = attention_phase::decode;
  own.block_q = 16;
  const bool alone = row.target == backend::cuda_sm90;
  own.block_kv = own.head_dim > 0 ? (alone ? 2048 : 4096) / own.head_dim : 32;
  own.tiling = {1, alone ? 12 : 6, false};
  return own;
}
/// Rows that have such a kernel, of mma.sync or wgmma.
constexpr bool has_own_kernel(const attention_config& row) noexcept {
  const attention_config config = resolved(row);
  return config.phase == attention_phase::prefill && config.keys == key_storage::paged &&
         is_cuda(config.target) && config.block_q == 128 &&
         (config.head_dim == 64 || config.head_dim == 128) && config.type != dtype::f32 &&
         config.v_head_dim == config.head_dim;
}
/// Its thread blocks that fit on a multiprocessor beside one of the row's.
inline constexpr int own_blocks_beside = 3;
/// And of all of them where the row has multiprocessors for itself: sequences whose keys are not
/// cut, if that many have room at once, are read sooner than their parts.
inline constexpr int own_blocks_uncut = 4;
/// Thread blocks of the row's kernel beside it. One of wgmma has its multiprocessor for itself: it
/// gets half of them, and the others read meanwhile.
constexpr int blocks_for_groups(const attention_config& row, int multiprocessors) noexcept {
  const int all = std::max(1, multiprocessors);
  return row.target == backend::cuda_sm90 ? (all + 1) / 2 : all;
}

/// The list of a row with a kernel beside its own, of single queries of sequences with prefixes.
constexpr listing listing_apart(const attention_config& kernel, const call_sizes& sizes,
                                int multiprocessors) noexcept {
  const attention_config own = own_config(kernel);
  listing list;
  list.used = list.apart = true;
  list.entries = sizes.prefixes + sizes.batch + 1;
  const std::int64_t heads = std::max<std::int64_t>(1, sizes.kv_heads);
  const std::int64_t rows = product(sizes.q_tokens, sizes.group());
  const std::int64_t group_tiles = rows / kernel.block_q + sizes.prefixes;
  const std::int64_t own_tiles = rows / own.block_q + sizes.batch + 1;
  list.tiles = group_tiles + own_tiles;
  list.least_tiles = static_cast<int>((least_keys_per_split + own.block_kv - 1) / own.block_kv);
  const int all = std::max(1, multiprocessors);
  const std::int64_t uncut =
      product(sizes.batch, heads) * ((sizes.group() + own.block_q - 1) / own.block_q);
  const bool has_room =
      kernel.target == backend::cuda_sm90 && uncut <= std::int64_t{all} * own_blocks_uncut;
  list.slots = all * (has_room ? own_blocks_uncut : own_blocks_beside);
  list.group_slots = blocks_for_groups(kernel, multiprocessors);
  list.group_items = std::max<std::int64_t>(group_tiles, list.group_slots / heads);
  const std::int64_t cut = (std::int64_t{most_waves} * list.slots + heads - 1) / heads + 1;
  list.items = own_tiles + cut + list.group_items;
  list.place_rows = own.block_q;
  list.places = std::min(own_tiles + cut, 2 * cut + own_tiles) +
                list.group_items * (kernel.block_q / own.block_q);
  return list;
}

/// The work as a list: of batches whose sequences may have any lengths and are long together, of
/// shared prefixes, and where splits are by the length of a sequence alone.
constexpr listing listing_of(const attention_config& kernel, const call_sizes& sizes,
                             int multiprocessors) noexcept {
  listing list;
  const std::int64_t bytes =
      product(product(sizes.batch, sizes.kv_heads), product(sizes.kv_len, sizes.bytes_of_key));
  const bool wanted = sizes.prefixes > 0 || sizes.batch_invariant ||
                      (sizes.batch > 1 && bytes >= least_listed_bytes);
  if (sizes.bytes_of_key == 0 || !wanted) return list;
  const bool decode = kernel.phase == attention_phase::decode;
  const std::int64_t heads = std::max<std::int64_t>(1, sizes.kv_heads);
  const auto is_counted = [&](const listing& planned) {
    return product(planned.items, heads) <= INT32_MAX &&
           product(planned.tiles, heads) <= INT32_MAX && planned.tiles <= most_listed_tiles;
  };
  if (sizes.prefixes > 0 && !sizes.packed && sizes.q_len == 1 && has_own_kernel(kernel)) {
    listing apart = listing_apart(kernel, sizes, multiprocessors);
    if (is_counted(apart)) return apart;
  }
  list.place_rows = kernel.block_q;
  const std::int64_t full = product(sizes.q_tokens, sizes.group()) / kernel.block_q;
  list.entries = sizes.prefixes + sizes.batch + 1;
  list.tiles = full + sizes.batch + 1 + (sizes.prefixes > 0 ? full + sizes.prefixes : 0);
  list.least_tiles =
      static_cast<int>((least_keys_per_split + kernel.block_kv - 1) / kernel.block_kv);
  list.slots = static_cast<int>(slots_of(kernel, multiprocessors));
  const std::int64_t key_tiles = (sizes.kv_len + kernel.block_kv - 1) / kernel.block_kv;
  const std::int64_t most_splits_of_tile =
      std::max<std::int64_t>(1, (key_tiles + list.least_tiles - 1) / list.least_tiles);
  // Of n tiles of keys and waves of at most w items, no more than w tiles of rows have several
  // items, and they no more than 2 w.
  const std::int64_t cut = (std::int64_t{most_waves} * list.slots + heads - 1) / heads + 1;
  if (sizes.batch_invariant) {
    const std::int64_t parts =
        decode ? std::min<std::int64_t>(most_invariant_splits, most_splits_of_tile) : 1;
    list.items = product(list.tiles, parts);
    list.places = parts > 1 ? list.items : 0;
  } else {
    list.items = std::min(product(list.tiles, most_splits_of_tile), list.tiles + cut);
    list.places = std::min(list.items, 2 * cut + (sizes.prefixes > 0 ? list.tiles : 0));
    if (finds_items(kernel, sizes)) {
      const std::int64_t slots =
          std::int64_t{std::max(1, multiprocessors)} * planned_warps_of(kernel);
      list.planned = planned_items_for(sizes.batch, heads, slots);
      list.places = std::max(list.places, list.planned);
    }
  }
  // What no device holds stays without one; so do numbers that the device does not count to.
  if (!is_counted(list)) return {};
  list.used = true;
  return list;
}

/// Bytes of the list in the workspace.
constexpr std::size_t list_bytes(const listing& list) noexcept {
  const std::int64_t numbers = list.items + 3 * (list.tiles + 1) + list.entries + 1 + 4;
  const std::int64_t bytes = list.items * bytes_of_item + list.tiles * bytes_of_tile + numbers * 4;
  return static_cast<std::size_t>((bytes + 63) / 64 * 64);
}

constexpr schedule schedule_of(const attention_config& config, const call_sizes& sizes,
                               int multiprocessors) noexcept {
  const attention_config kernel = resolved(config);
  const auto blocks_of = [&](std::int64_t tokens) {
    return (product(tokens, sizes.group()) + kernel.block_q - 1) / kernel.block_q;
  };
  schedule cut;
  cut.rows = product(sizes.q_tokens, sizes.q_heads);
  if (sizes.packed) {
    // Every sequence, and the rows behind the last, may end with a block that is not full.
    const std::int64_t blocks =
        product(sizes.q_tokens, sizes.group()) / kernel.block_q + sizes.batch + 1;
    const std::int64_t busy = blocks_of(product(sizes.batch, sizes.q_len));
    cut.work_tiles = product(blocks, sizes.kv_heads);
    cut.busy_tiles = product(std::max(sizes.batch, busy), sizes.kv_heads);
  } else {
    const std::int64_t blocks = blocks_of(sizes.q_len);
    cut.row_blocks = static_cast<int>(std::min<std::int64_t>(blocks, INT32_MAX));
    cut.work_tiles = cut.busy_tiles = product(blocks, product(sizes.batch, sizes.kv_heads));
  }
  cut.section = section_of(sizes);
  const bool decode = kernel.phase == attention_phase::decode;
  const std::int64_t keys = keys_of_tile(kernel, sizes);
  cut.splits =
      decode && sizes.bytes_of_key > 0
          ? paged_splits_for({cut.busy_tiles, keys / kernel.block_kv,
                              product(kernel.block_kv, sizes.bytes_of_key)},
                             std::max(1, multiprocessors), std::max(1, kernel.tiling.blocks_per_sm))
          : splits_for(cut.busy_tiles, keys, slots_of(kernel, multiprocessors));
  if (cut.splits > 1) {
    cut.launches = decode && cut.work_tiles <= most_counted_tiles ? 1 : 2;
    share_combining(cut, kernel, sizes, multiprocessors);
  }
  cut.list = listing_of(kernel, sizes, multiprocessors);
  if (cut.list.used) {
    cut.launches = cut.list.planned > 0 ? 2 : cut.list.apart ? 4 : 3;
    cut.partial_rows = product(product(cut.list.places, sizes.kv_heads), cut.list.place_rows);
  } else if (cut.splits > 1) {
    cut.partial_rows = product(cut.rows, cut.splits);
  }
  return cut;
}

/// Floats of a row's partial output in the workspace.
constexpr int partial_stride(int v_head_dim) noexcept {
  return (v_head_dim + 7) / 8 * 8;
}

/// Bytes of workspace: a list, partial outputs of all rows and splits, then their maxima and
/// denominators.
constexpr std::size_t workspace_of(const schedule& cut, int v_head_dim) noexcept {
  const auto partials = static_cast<std::size_t>(cut.partial_rows);
  return (cut.list.used ? list_bytes(cut.list) : 0) +
         partials * (static_cast<std::size_t>(partial_stride(v_head_dim)) + 2) * sizeof(float);
}

}  // namespace tessera::schedule_sm80
