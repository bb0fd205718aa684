// How calls of single tokens are cut whose heads are the columns of products of the mma.sync
// kernels (sm_80 on): their blocks have several warps, each with a part of the block's keys. Host
// code without any CUDA call.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <tessera/families/attention/call_sizes_sm80.hpp>
#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/schedule_sm80.hpp>
#include <tessera/prim/common/host_device.hpp>

namespace tessera::schedule_sm80 {

/// How well such a call keeps multiprocessors busy: the share of its waves of blocks that has work;
/// less what a wave of many splits takes to combine them, and what several waves of large blocks
/// lose from one to the next, as measured on an H200.
constexpr double grouped_use(std::int64_t blocks, std::int64_t slots, int parts) noexcept {
  const std::int64_t waves = (blocks + slots - 1) / slots;
  const double full = static_cast<double>(blocks) / static_cast<double>(waves * slots);
  if (waves > 1) return parts == 1 ? full : 0.94 * full;
  return parts == 1 ? 0.9 * full : parts == 2 ? 0.95 * full : full;
}

/// How many warps the blocks of such a call have, each with a part of the block's keys, and how
/// many blocks a work tile: what warps of a block have is added up there, so that several waves of
/// blocks need no splits, and one wave few.
constexpr void share_blocks(schedule& cut, const attention_config& config, const call_sizes& sizes,
                            int multiprocessors, int most_parts) noexcept {
  const attention_config kernel = resolved(config);
  const std::int64_t all = std::int64_t{std::max(1, multiprocessors)} * grouped_warps;
  if (cut.list.used) {
    cut.list.slots = static_cast<int>(all);
    if (!sizes.batch_invariant && sizes.batch <= most_planned_sequences) {
      cut.list.planned = planned_items_for(sizes.batch, sizes.kv_heads, multiprocessors);
    }
    return;
  }
  const std::int64_t tiles = std::max<std::int64_t>(1, cut.work_tiles);
  const std::int64_t key_tiles =
      std::max<std::int64_t>(1, keys_of_tile(kernel, sizes) / kernel.block_kv);
  const std::int64_t most_splits_here = cut.splits;
  double best = 0.0;
  for (int parts = 1; parts <= std::min<std::int64_t>(most_parts, key_tiles); parts *= 2) {
    const std::int64_t slots = all / parts;
    const std::int64_t splits =
        std::max<std::int64_t>(1, std::min({slots / tiles, most_splits_here, key_tiles / parts}));
    const double use = grouped_use(product(tiles, splits), slots, parts);
    if (use <= best) continue;
    best = use;
    cut.parts = parts;
    cut.splits = static_cast<int>(splits);
  }
  cut.launches = 1;
  if (cut.splits > 1) share_combining(cut, kernel, sizes, multiprocessors);
}

/// Parts of a sequence of so many tiles of keys, where `left` are those of it and of all behind it:
/// each has the share of a block that runs beside others, and `least` at least, so that the blocks
/// of a launch end next to each other (guided self-scheduling).
TESSERA_HD inline int planned_parts(int tiles, float left, float share, float least) noexcept {
  constexpr float longest = 0x1p26f;  // no sequence has as many tiles
  const float own = left * share < longest ? left * share : longest;
  const int each = static_cast<int>(std::ceil(own > least ? own : least));
  const int parts = (tiles + each - 1) / each;
  return parts > 1 ? parts : 1;
}
/// Tiles that a part of a batch of `all` has at least.
TESSERA_HD inline float least_of_part(float all, float share, int least) noexcept {
  const float own = all * share / static_cast<float>(least_planned_part);
  return own > static_cast<float>(least) ? own : static_cast<float>(least);
}

}  // namespace tessera::schedule_sm80
