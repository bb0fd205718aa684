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

/// Warps of a block where work tiles are more than the blocks of one warp that run at once. Of less
/// than 1.75 waves the last one would leave most multiprocessors idle: blocks of several warps,
/// which are more waves, end next to each other (one H200: 100 sequences of 4,096 keys 410 us and
/// 376).
constexpr int parts_of_waves(const paged_keys& keys, std::int64_t slots, int most_parts) noexcept {
  if (4 * keys.tiles >= 7 * slots) return 1;
  const std::int64_t parts = keys.key_tiles >= 32 ? 3 : 2;
  return static_cast<int>(std::min<std::int64_t>({parts, most_parts, keys.key_tiles}));
}

/// How long blocks with so many warps take, of `splits` for a work tile. Where a multiprocessor has
/// fewer of them than another, memory is there for the others: four fifths of what is uneven do not
/// count if no split waits for another and warps have few tiles. What combines waits and reads
/// again (one H200: 8 sequences of 256 keys 7.9 us in four splits, 5.4 in none).
constexpr double time_of_share(const paged_keys& keys, std::int64_t splits, int multiprocessors,
                               int parts) noexcept {
  constexpr double left_to_others = 0.8, wait_and_read = 1.9;
  constexpr std::int64_t few_tiles = 64;
  const std::int64_t blocks = keys.tiles * splits;
  const auto most = static_cast<double>(blocks_of_fullest(blocks, multiprocessors));
  if (splits > 1) return time_of_splits(keys, splits, most, parts) + wait_and_read;
  const double mean =
      std::max(1.0, static_cast<double>(blocks) / static_cast<double>(multiprocessors));
  const double left = keys.key_tiles < few_tiles * parts ? left_to_others : 0.0;
  return time_of_splits(keys, 1, most - left * (most - mean), parts);
}

/// How many warps the blocks of such a call have, each with a part of the block's keys, and how
/// many blocks a work tile: what the warps of a block have is added up there. Blocks have room for
/// `most_parts` warps; those that find items, with a tile more each, for `most_planned_parts`.
constexpr void share_blocks(schedule& cut, const attention_config& config, const call_sizes& sizes,
                            int multiprocessors, int most_parts, int most_planned_parts) noexcept {
  const attention_config kernel = resolved(config);
  const std::int64_t all = std::max(1, multiprocessors);
  if (cut.list.used) {
    // Items and places were counted for as many blocks as the kernel's others run side by side.
    const auto limit_slots = [&](std::int64_t of_multiprocessor) {
      cut.list.slots =
          static_cast<int>(std::min<std::int64_t>(cut.list.slots, all * of_multiprocessor));
    };
    limit_slots(planned_warps_of(kernel));
    if (cut.list.planned > 0) {
      // Two blocks of two warps on each multiprocessor (of 8 bits four): fewer sequences are cut,
      // and fewer blocks look for an item. Of four warps all would wait for that.
      cut.parts = kernel.head_dim > 64 && most_planned_parts >= planned_warps ? 2 : 1;
      limit_slots(planned_warps_of(kernel) / cut.parts);
      cut.list.planned = planned_items_for(sizes.batch, sizes.kv_heads, cut.list.slots);
    }
    return;
  }
  const paged_keys keys{std::max<std::int64_t>(1, cut.work_tiles),
                        std::max<std::int64_t>(1, keys_of_tile(kernel, sizes) / kernel.block_kv),
                        product(kernel.block_kv, sizes.bytes_of_key)};
  const std::int64_t most_of_tile = cut.splits;
  double least = 0.0;
  for (const int parts : {1, 2, 3, 4}) {
    const std::int64_t slots = all * (kernel.tiling.blocks_per_sm / parts);
    if (parts > most_parts || parts > keys.key_tiles || (parts > 1 && keys.tiles > slots)) break;
    if (keys.tiles > slots) {
      cut.parts = parts_of_waves(keys, slots, most_parts);
      cut.splits = 1;
      break;
    }
    // No more splits than a warp combines at once, several warps no more than in one group of
    // lanes: 33 splits of three warps took 136 us of 131,072 keys, 16 of four 128 (one H200). Of
    // elements of 8 bits in two: 32 of four warps 70, 16 73.
    const int groups = parts == 1 ? groups_of_many : kernel.keys == key_storage::coded ? 2 : 1;
    const std::int64_t at_once = many_splits * groups;
    const std::int64_t most = std::max<std::int64_t>(
        1, std::min({slots / keys.tiles, most_of_tile, at_once, keys.key_tiles / parts}));
    for (std::int64_t splits = 1; splits <= most; ++splits) {
      const double time = time_of_share(keys, splits, static_cast<int>(all), parts);
      if (least > 0.0 && time >= least) continue;
      least = time;
      cut.parts = parts;
      cut.splits = static_cast<int>(splits);
    }
  }
  if (cut.splits == 1) cut.launches = 1;
  if (cut.splits > 1) share_combining(cut, kernel, sizes, multiprocessors);
}

/// The cut of any call on a device whose blocks have room for so many such warps.
constexpr schedule shared_schedule_of(const attention_config& config, const call_sizes& sizes,
                                      int multiprocessors, int most_parts,
                                      int most_planned_parts) noexcept {
  schedule cut = schedule_of(config, sizes, multiprocessors);
  if (are_all_grouped(config, sizes)) {
    share_blocks(cut, config, sizes, multiprocessors, most_parts, most_planned_parts);
  }
  return cut;
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
