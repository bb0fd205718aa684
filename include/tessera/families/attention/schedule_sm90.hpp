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

/// Key/value heads of a section: with a diagonal, where the longest tiles come first, as many as
/// fit the L2 cache; without one head after head.
constexpr std::int64_t kv_heads_of_section(const call_sizes& sizes) noexcept {
  if (sizes.keys_right >= sizes.kv_len) return 1;
  return schedule_sm80::section_of(sizes);
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
  const std::int64_t section =
      product(kv_heads_of_section(sizes), sizes.group() / cut.heads_of_tile);
  cut.section = static_cast<int>(std::clamp<std::int64_t>(
      section, 1,
      std::max<std::int64_t>(1, std::min<std::int64_t>(product(sizes.batch, heads), INT32_MAX))));
  return cut;
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

/// Bytes of workspace where blocks count tiles if no other place is left.
inline constexpr std::size_t counter_bytes = 64;

constexpr std::size_t workspace_of(const class_schedule& classes) noexcept {
  return counter_bytes + static_cast<std::size_t>(classes.words()) * class_word_bytes;
}

}  // namespace tessera::schedule_sm90
