// Masks of blocks: how much the block of rows i and keys j shows, from a mask functor. The same
// text makes them on the host (api/block_mask.hpp) and on a device.
#pragma once

#include <cstdint>
#include <limits>

#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Elements of block_mask: `mask` and functors are asked about pairs of a block of which part is
/// shown, and not of one that is shown as a whole. Other values than 0 and 2 are read as 1.
enum class block_shown : std::uint8_t { none = 0, part = 1, whole = 2 };

constexpr block_shown shown_of(prim::tile_visibility visibility) noexcept {
  return visibility == prim::tile_visibility::skip   ? block_shown::none
         : visibility == prim::tile_visibility::full ? block_shown::whole
                                                     : block_shown::part;
}

/// Hooks of operations whose logits no functor changes (see with_mask).
template <class Mask>
using mask_hooks = flash_hooks<prim::no_logit_modifier, Mask>;

/// The pairs that a mask of blocks covers, and how they are cut into blocks.
struct block_grid {
  std::int64_t batch = 1;  ///< entries whose masks differ; 1: all have the same
  std::int64_t heads = 1;  ///< query heads likewise
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
  std::int64_t block_q = 64;
  std::int64_t block_k = 64;
  std::int64_t first_position = 0;  ///< `position::query_position` of row 0

  TESSERA_HD constexpr std::int64_t rows() const { return (q_len + block_q - 1) / block_q; }
  TESSERA_HD constexpr std::int64_t columns() const { return (kv_len + block_k - 1) / block_k; }
  TESSERA_HD constexpr std::int64_t blocks() const { return batch * heads * rows() * columns(); }

  /// Block number `block` of [batch][heads][rows][columns].
  TESSERA_HD constexpr prim::score_tile tile_of(std::int64_t block) const {
    const std::int64_t key = block % columns() * block_k, row = block / columns() % rows();
    const std::int64_t head = block / (rows() * columns()) % heads, query = row * block_q;
    const auto end = [](std::int64_t first, std::int64_t count, std::int64_t length) {
      return length - first < count ? length : first + count;
    };
    return {.entry = block / (heads * rows() * columns()),
            .head_begin = static_cast<int>(head),
            .head_end = static_cast<int>(head) + 1,
            .query_begin = query,
            .query_end = end(query, block_q, q_len),
            .key_begin = key,
            .key_end = end(key, block_k, kv_len)};
  }

  /// Pairs of a block, and what a functor is asked about one of them.
  TESSERA_HD static constexpr std::int64_t pairs_of(const prim::score_tile& tile) {
    return (tile.query_end - tile.query_begin) * (tile.key_end - tile.key_begin);
  }
  TESSERA_HD constexpr position position_of(const prim::score_tile& tile, std::int64_t pair) const {
    const std::int64_t keys = tile.key_end - tile.key_begin;
    const std::int64_t query = tile.query_begin + pair / keys;
    return {.batch = tile.entry,
            .head = tile.head_begin,
            .query = query,
            .key = tile.key_begin + pair % keys,
            .query_position = query + first_position};
  }
};

/// Refuses sizes that are none, and more blocks or pairs than can be counted.
inline status check_grid(const block_grid& grid) {
  struct size {
    const char* name;
    std::int64_t value;
    std::int64_t least;
  };
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  for (const size& of : {size{"batch", grid.batch, 1}, size{"heads", grid.heads, 1},
                         size{"q_len", grid.q_len, 0}, size{"kv_len", grid.kv_len, 0},
                         size{"block_q", grid.block_q, 1}, size{"block_k", grid.block_k, 1}}) {
    if (of.value >= of.least && of.value <= most) continue;
    return refusal(status_code::invalid_argument,
                   {"block_mask: ", of.name, " is ", of.value, ", it is ", of.least, " to ", most});
  }
  constexpr double most_pairs = 0x1p62;
  const double pairs = static_cast<double>(grid.batch) * static_cast<double>(grid.heads) *
                       static_cast<double>(grid.q_len) * static_cast<double>(grid.kv_len);
  if (pairs <= most_pairs) return {};
  return refusal(status_code::invalid_argument,
                 {"block_mask: has ", pairs, " pairs of rows and keys, there may be ", most_pairs});
}

/// How much some of the pairs of a block show: every `step`-th one from `first` on.
template <class Mask>
TESSERA_HD constexpr prim::tile_visibility shown_pairs(const Mask& mask, const block_grid& grid,
                                                       const prim::score_tile& tile,
                                                       std::int64_t first, std::int64_t step) {
  bool some = false, all = true;
  for (std::int64_t pair = first; pair < block_grid::pairs_of(tile) && (all || !some);
       pair += step) {
    const bool shown = mask(grid.position_of(tile, pair));
    some = some || shown;
    all = all && shown;
  }
  return all    ? prim::tile_visibility::full
         : some ? prim::tile_visibility::partial
                : prim::tile_visibility::skip;
}

/// How much a block shows: what the functor says of it, or else what its pairs do.
template <class Mask>
constexpr prim::tile_visibility shown_of_tile(const Mask& mask, const block_grid& grid,
                                              const prim::score_tile& tile) {
  if constexpr (prim::classifies_tiles<Mask>) {
    return mask.classify(tile);
  } else {
    return shown_pairs(mask, grid, tile, 0, 1);
  }
}

}  // namespace tessera
