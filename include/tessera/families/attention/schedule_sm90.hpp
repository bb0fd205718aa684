// How a call of the wgmma kernels (sm_90a) is cut: work tiles of query rows, heads that share a
// tile, sections of heads. Decided here and nowhere else: launch, workspace size, cost estimate and
// explain call the same functions. Host code without any CUDA call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/attention/schedule_sm80.hpp>

namespace tessera::schedule_sm90 {

using schedule_sm80::call_sizes;
using schedule_sm80::product;
using schedule_sm80::sizes_of;

struct schedule {
  int heads_of_tile = 1;   ///< query heads whose rows lie in the same work tile
  int tokens_of_tile = 0;  ///< query positions of a work tile
  int row_blocks = 0;      ///< of a dense entry and `heads_of_tile` heads
  std::int64_t work_tiles = 0;
  /// Work tiles that have rows; packed: if all sequences have the mean length.
  std::int64_t busy_tiles = 0;
  int section = 1;  ///< of so many times `heads_of_tile` heads worked on at the same time
};

/// Query positions of a tile that many heads share.
constexpr int tokens_for(int block_q, std::int64_t heads) noexcept {
  return static_cast<int>(block_q / std::max<std::int64_t>(1, heads));
}

/// Tiles of all sequences and heads, if every sequence has the mean length.
constexpr std::int64_t tiles_for(const call_sizes& sizes, int block_q,
                                 std::int64_t heads_of_tile) noexcept {
  const std::int64_t tokens = tokens_for(block_q, heads_of_tile);
  const std::int64_t blocks = (sizes.q_len + tokens - 1) / tokens;
  return product(blocks, product(sizes.batch, sizes.q_heads / heads_of_tile));
}

/// The heads of a group share a tile where that takes fewer tiles: short sequences of queries.
/// Those of packed sequences always do, so that a sequence is cut the same way whatever it is
/// packed with.
constexpr int heads_of_tile_for(const call_sizes& sizes, int block_q) noexcept {
  const std::int64_t group = sizes.group();
  if (group <= 1 || group > 64 || group > block_q) return 1;
  const bool fewer = tiles_for(sizes, block_q, group) < tiles_for(sizes, block_q, 1);
  return sizes.packed || fewer ? static_cast<int>(group) : 1;
}

/// Most tiles of a head whose sections are short, and keys and values of those, counted with 16
/// bits an element as in `schedule_sm80::section_of`.
inline constexpr int few_row_blocks = 4;
inline constexpr std::int64_t bytes_of_short_section = std::int64_t{8} << 20;

/// Key/value heads of a section: with a diagonal, where the longest tiles come first, as many as
/// fit the L2 cache; without one head after head. Short sequences are bound by memory, which the
/// longest tiles of many heads, that read keys which others find in the cache, would ask too much
/// of (bench/results).
constexpr std::int64_t kv_heads_of_section(const attention_config& kernel,
                                           const call_sizes& sizes) noexcept {
  if (sizes.keys_right >= sizes.kv_len) return 1;
  const std::int64_t most = schedule_sm80::section_of(sizes);
  if (std::max(sizes.q_len, sizes.kv_len) > few_row_blocks * kernel.block_q) return most;
  const std::int64_t bytes_of_head = product(sizes.kv_len, 2 * (sizes.head_dim + sizes.v_head_dim));
  const std::int64_t heads = bytes_of_short_section / std::max<std::int64_t>(1, bytes_of_head);
  return std::min(most, std::max<std::int64_t>(1, heads));
}

constexpr schedule schedule_of(const attention_config& config, const call_sizes& sizes) noexcept {
  const attention_config kernel = resolved(config);
  schedule cut;
  cut.heads_of_tile = heads_of_tile_for(sizes, kernel.block_q);
  cut.tokens_of_tile = tokens_for(kernel.block_q, cut.heads_of_tile);
  const std::int64_t heads = sizes.q_heads / cut.heads_of_tile;
  cut.busy_tiles = tiles_for(sizes, kernel.block_q, cut.heads_of_tile);
  if (sizes.packed) {
    // Every sequence, and the rows behind the last, may end with a tile that is not full.
    const std::int64_t blocks = sizes.q_tokens / cut.tokens_of_tile + sizes.batch + 1;
    cut.work_tiles = product(blocks, heads);
  } else {
    const std::int64_t blocks = (sizes.q_len + cut.tokens_of_tile - 1) / cut.tokens_of_tile;
    cut.row_blocks = static_cast<int>(std::min<std::int64_t>(blocks, INT32_MAX));
    cut.work_tiles = cut.busy_tiles;
  }
  const std::int64_t heads_of_group = std::max<std::int64_t>(1, sizes.group() / cut.heads_of_tile);
  const std::int64_t section = product(kv_heads_of_section(kernel, sizes), heads_of_group);
  cut.section = static_cast<int>(std::clamp<std::int64_t>(
      section, 1,
      std::max<std::int64_t>(1, std::min<std::int64_t>(product(sizes.batch, heads), INT32_MAX))));
  return cut;
}

/// The last work tiles, which would leave multiprocessors idle, shared out by their keys: each part
/// is a block's work, and the block that ends last makes the rows of all parts
/// (kernels/attention/sm90/key_parts.hpp). Parts are as long as one another but the last of each
/// tile, which may be shorter: blocks that have no other then make several of these.
struct split_schedule {
  int tiles = 0;          ///< the last so many work tiles
  int parts = 1;          ///< of each
  int units = 1;          ///< that its keys are counted in
  int units_of_part = 1;  ///< of all but the last

  /// What blocks are handed out instead of the tiles.
  constexpr std::int64_t pieces() const noexcept { return std::int64_t{tiles} * parts; }
};

inline constexpr int most_parts = 8;
inline constexpr int most_split_tiles = 160;
/// What keys are counted in where parts are not as long as one another.
inline constexpr int uneven_units = 64;

/// A wave of tiles that is not full.
struct last_wave {
  std::int64_t tiles = 0, key_tiles = 0;
  int multiprocessors = 1;

  constexpr double busy(std::int64_t blocks) const noexcept {
    return std::max(0.2, static_cast<double>(blocks) / multiprocessors);
  }
};

/// Time that a part of a work tile takes to be written or read, in that of a tile of keys. As
/// measured on an H100 (bench/results): multiprocessors make products at 5.3 TFLOP/s each and, all
/// at once, write or read parts at 22 GB/s each; one alone reads five times as fast.
constexpr double time_to_move(const attention_config& kernel) noexcept {
  const double of_tile = 2.0 * kernel.block_kv * (kernel.head_dim + kernel.v_head_dim) / 5.3e12;
  return 4.0 * (kernel.v_head_dim + 8) / 22e9 / of_tile;
}
/// In that time, a work tile begins and ends (on an H200).
inline constexpr double time_of_ends = 3.5;

/// Time of the wave with tiles in so many equal parts, in that of a tile of keys.
constexpr double time_of_parts(const attention_config& kernel, const last_wave& wave,
                               int parts) noexcept {
  const std::int64_t waves = (wave.tiles * parts + wave.multiprocessors - 1) / wave.multiprocessors;
  const std::int64_t keys = (wave.key_tiles + parts - 1) / parts;
  const double whole = static_cast<double>(keys) + time_of_ends;
  if (parts == 1) return static_cast<double>(waves) * whole;
  const double to_move = time_to_move(kernel);
  const double to_read = (parts - 1) * to_move * wave.busy(wave.tiles);
  return static_cast<double>(waves) * (whole + to_move) + to_read;
}

/// The same with so many equal parts, which all have a multiprocessor, and a shorter one that the
/// others have several of: `units` of keys for each of the equal ones so that all end together.
struct uneven_parts {
  int units = 0;
  double time = 0;
};
constexpr uneven_parts uneven_of(const attention_config& kernel, const last_wave& wave,
                                 int parts) noexcept {
  const std::int64_t idle = wave.multiprocessors - wave.tiles * parts;
  if (idle <= 0 || idle >= wave.tiles) return {};
  const double to_move = time_to_move(kernel);
  const auto keys = static_cast<double>(wave.key_tiles);
  const std::int64_t tiles_of_idle = (wave.tiles + idle - 1) / idle;
  const auto shorter = static_cast<double>(tiles_of_idle);
  const double own = time_of_ends + (parts > 1 ? to_move * wave.busy(wave.tiles * parts) : 0.0);
  const double of_shorter = time_of_ends + to_move * wave.busy(idle);
  // keys * x + own = shorter * (keys * (1 - parts * x) + of_shorter)
  const double x = (shorter * (keys + of_shorter) - own) / (keys * (1 + shorter * parts));
  const double wanted = x * uneven_units;
  const int below = static_cast<int>(wanted);
  const int units = std::min(below + (wanted - below >= 0.5 ? 1 : 0), uneven_units / parts);
  if (units < 1 || units * parts >= uneven_units) return {};
  const double part = static_cast<double>(units) / uneven_units;
  const double rest = 1 - parts * part;
  const double time = std::max(keys * part + own, shorter * (keys * rest + of_shorter));
  return {units, time + parts * to_move * wave.busy(wave.tiles)};
}

/// Part of a wave that tiles take less than whole ones: each sequence has one that may lack groups
/// of 64 rows.
constexpr double lacking_of_wave(const attention_config& kernel, const call_sizes& sizes,
                                 const schedule& cut, int multiprocessors) noexcept {
  if (cut.row_blocks == 0) return 0;
  const std::int64_t tokens = product(cut.row_blocks, cut.tokens_of_tile) - sizes.q_len;
  const std::int64_t rows = product(tokens, cut.heads_of_tile) / 64 * 64;
  return static_cast<double>(product(rows, cut.work_tiles / cut.row_blocks)) /
         static_cast<double>(product(kernel.block_q, multiprocessors));
}

/// Rows that look at every score have no registers left for it.
constexpr bool shares_keys(const attention_config& config) noexcept {
  return config.features.without(base_features | attention_feature::soft_cap).empty();
}

/// Of dense calls whose bits may depend on the batch. Where rows do not see about as many keys as
/// others, the last tiles are the shortest, and are only cut if every tile has a multiprocessor.
constexpr split_schedule splits_of(const attention_config& config, const call_sizes& sizes,
                                   const schedule& cut, bool top_left,
                                   int multiprocessors) noexcept {
  if (!shares_keys(config) || sizes.packed || sizes.batch_invariant || multiprocessors < 1) {
    return {};
  }
  const attention_config kernel = resolved(config);
  const bool alike = sizes.keys_right >= sizes.kv_len || sizes.keys_left < sizes.kv_len ||
                     (!top_left && sizes.q_len <= sizes.kv_len / 4);
  const bool one_wave = cut.work_tiles < multiprocessors;
  if (!alike && !one_wave) return {};
  const std::int64_t tiles = cut.work_tiles % multiprocessors;
  if (tiles == 0 || tiles > most_split_tiles) return {};
  const std::int64_t keys = top_left && sizes.keys_right < sizes.kv_len
                                ? std::min(sizes.q_len, sizes.kv_len)
                                : sizes.kv_len;
  call_sizes seen = sizes;
  seen.kv_len = keys;
  const std::int64_t key_tiles = schedule_sm80::keys_of_tile(kernel, seen) / kernel.block_kv;
  const last_wave wave{tiles, key_tiles, multiprocessors};
  // Blocks that had short tiles before take some of the last earlier.
  const double lacking = lacking_of_wave(kernel, sizes, cut, multiprocessors);
  const double early = one_wave ? 0.0 : std::min(0.5, lacking / 2);
  double best = time_of_parts(kernel, wave, 1) * (1 - early);
  split_schedule split;
  for (int parts = 2; parts <= most_parts && 2 * parts <= key_tiles; ++parts) {
    const double time = time_of_parts(kernel, wave, parts);
    if (time >= 0.95 * best) continue;
    best = time;
    split = {static_cast<int>(tiles), parts, parts, 1};
  }
  for (int parts = 1; parts < most_parts && 2 * parts < key_tiles; ++parts) {
    const uneven_parts uneven = uneven_of(kernel, wave, parts);
    if (uneven.units == 0 || uneven.time >= 0.92 * best) continue;
    best = uneven.time;
    split = {static_cast<int>(tiles), parts + 1, uneven_units, uneven.units};
  }
  return split;
}

/// Bytes of the parts of work tiles in the workspace: sums of values in f32, and four more numbers
/// for each thread of a consumer, 32 columns.
constexpr std::size_t part_bytes(const attention_config& config,
                                 const split_schedule& split) noexcept {
  const attention_config kernel = resolved(config);
  const auto columns = static_cast<std::size_t>(sm90_columns(kernel.v_head_dim)) + 8;
  return static_cast<std::size_t>(split.tiles > 0 ? split.pieces() : 0) *
         static_cast<std::size_t>(kernel.block_q) * columns * sizeof(float);
}

/// Rows over pages whose work may be a list: three warpgroups have no registers left for it.
constexpr bool takes_lists(const attention_config& config) noexcept {
  return config.target == backend::cuda_sm90 && schedule_sm80::has_own_kernel(config);
}

/// The work over pages as a list, as in schedule_sm80.hpp, if the rows of whole tokens fill a tile.
/// Of single tokens whose sequences share pages, what groups share is this row's, the rest a
/// kernel's of mma.sync. Of several tokens in batch entries no pages are shared. Without a list
/// each sequence reads all of its pages, and keys are not split.
constexpr schedule_sm80::schedule listed_of(const attention_config& config, const call_sizes& sizes,
                                            int multiprocessors) noexcept {
  const std::int64_t group = sizes.group();
  const bool has_entries = !sizes.packed && sizes.q_len != 1;
  if (!takes_lists(config) || sizes.batch_invariant || (has_entries && sizes.prefixes > 0) ||
      group < 1 || resolved(config).block_q % group != 0) {
    return {};
  }
  const auto cut = schedule_sm80::schedule_of(config, sizes, multiprocessors);
  return cut.list.used ? cut : schedule_sm80::schedule{};
}

/// Flops, were all keys seen, from which on segments are looked at first: where each is one run of
/// keys, rows see intervals and are made by a kernel without segments
/// (kernels/attention/sm90/segment_runs.hpp). Calls with less to do, or with entries of few tiles,
/// gain less than the kernels more take. Which kernel makes a row follows from the whole batch.
inline constexpr double least_run_flops = 2e10;
inline constexpr int least_run_keys = 512;
constexpr bool gains_by_runs(const call_sizes& sizes) noexcept {
  const double pairs = static_cast<double>(sizes.q_tokens) * static_cast<double>(sizes.kv_len) *
                       static_cast<double>(sizes.q_heads);
  return !sizes.packed && !sizes.batch_invariant && sizes.kv_len >= least_run_keys &&
         2 * pairs * (sizes.head_dim + sizes.v_head_dim) >= least_run_flops;
}

/// How many words tell which tiles of keys a mask, segments or a functor hide as a whole: one for
/// each block of rows, 32 tiles of keys and, where heads do not see the same, block of heads.
struct class_schedule {
  int blocks = 0;  ///< of rows, over all sequences
  int heads = 1;   ///< blocks of heads that do not see the same
  int words_of_row = 0;

  constexpr std::int64_t words() const noexcept {
    return product(product(blocks, heads), words_of_row);
  }
};

/// Bytes of a word: of three warpgroups and their block, what they see something and all of.
inline constexpr std::size_t class_word_bytes = 32;
/// So many words are a gigabyte: beyond, nobody classifies, and every tile is looked at.
inline constexpr std::int64_t most_class_words = std::int64_t{1} << 25;

constexpr class_schedule classes_of(const attention_config& config, const call_sizes& sizes,
                                    const schedule& cut, bool by_head) noexcept {
  const attention_config kernel = resolved(config);
  const std::int64_t head_blocks = std::max<std::int64_t>(1, sizes.q_heads / cut.heads_of_tile);
  const std::int64_t tiles = (sizes.kv_len + kernel.block_kv - 1) / kernel.block_kv;
  const std::int64_t blocks = cut.work_tiles / head_blocks;
  if (blocks > most_class_words || tiles > most_class_words) return {};
  const class_schedule classes{static_cast<int>(blocks),
                               by_head ? static_cast<int>(head_blocks) : 1,
                               static_cast<int>((tiles + 31) / 32)};
  return classes.words() <= most_class_words ? classes : class_schedule{};
}

/// The most words that tensors of these sizes may take: whether the heads of a mask see the same is
/// for its strides to say, which a plan does not know where the mask has no element.
constexpr std::int64_t room_for_classes(const attention_config& config, const call_sizes& sizes,
                                        const schedule& cut) noexcept {
  return std::max(classes_of(config, sizes, cut, false).words(),
                  classes_of(config, sizes, cut, true).words());
}

/// Bytes of workspace where blocks count tiles, and parts of tiles, if no other place is left.
inline constexpr std::size_t counter_bytes = 64 + most_split_tiles * sizeof(std::uint32_t);

/// Bytes of the counters, and of so many words behind them.
constexpr std::size_t workspace_of(std::int64_t class_words) noexcept {
  return counter_bytes + static_cast<std::size_t>(class_words) * class_word_bytes;
}

}  // namespace tessera::schedule_sm90
