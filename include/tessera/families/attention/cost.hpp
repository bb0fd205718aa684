// What an attention row would have to do for a demand: the numbers that the cost model ranks rows
// by.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/demand.hpp>
#include <tessera/families/attention/fits.hpp>
#include <tessera/families/attention/schedule_cpu.hpp>
#include <tessera/families/attention/schedule_sm80.hpp>
#include <tessera/families/attention/schedule_sm90.hpp>
#include <tessera/families/attention/share_blocks_sm80.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/spec/work_estimate.hpp>

namespace tessera {

/// Sizes that every row's estimate starts from.
struct attention_facts {
  attention_demand demand{};
  double rows = 0;          ///< query rows per key/value head: the heads of a group are rows
  double heads = 0;         ///< batch entries times key/value heads
  double visible_keys = 0;  ///< mean over rows
};

/// Mean number of keys that a row sees.
constexpr double mean_visible_keys(const attention_demand& demand) noexcept {
  const attention_sizes& sizes = demand.sizes;
  const auto bound = [](std::int64_t window) { return window >= 0 ? window : unbounded; };
  const prim::mask_interval mask{demand.causal, bound(demand.window_left),
                                 bound(demand.window_right),
                                 demand.top_left ? 0 : sizes.kv_len - sizes.q_len};
  return mask.mean_keys(sizes.q_len, sizes.kv_len);
}

inline attention_facts facts_of(const attention_demand& demand) noexcept {
  const attention_sizes& sizes = demand.sizes;
  const auto group = sizes.kv_heads > 0 ? sizes.q_heads / sizes.kv_heads : 0;
  return {.demand = demand,
          .rows = static_cast<double>(sizes.q_len) * static_cast<double>(group),
          .heads = static_cast<double>(sizes.batch) * static_cast<double>(sizes.kv_heads),
          .visible_keys = mean_visible_keys(demand)};
}

/// Rows that read the same keys, and these.
struct reading_rows {
  double heads = 0, rows = 0, keys = 0;
};

/// Those of sequences, then those of groups of them that share pages, of which each row sees `seen`
/// keys. Nobody knows yet how many keys groups share: most.
constexpr std::array<reading_rows, 2> rows_and_groups(const attention_facts& facts,
                                                      double seen) noexcept {
  const auto groups = static_cast<double>(facts.demand.prefix_groups);
  if (groups <= 0) return {{{facts.heads, facts.rows, seen}, {}}};
  const attention_sizes& sizes = facts.demand.sizes;
  const double members = static_cast<double>(sizes.batch) / groups;
  return {{{facts.heads, facts.rows, 0.25 * seen},
           {groups * static_cast<double>(sizes.kv_heads), facts.rows * members, 0.75 * seen}}};
}

/// Scores that the blocks of a CUDA row make of them, and keys that they read: from memory once,
/// and from the L2 cache for every further block of rows, which costs a third.
struct block_work {
  double scores = 0, keys_read = 0;
};
inline block_work work_of_blocks(const attention_config& kernel, const reading_rows& of) noexcept {
  const auto pieces = [](double size, double step) {
    return std::max(1.0, static_cast<double>(static_cast<std::int64_t>((size + step - 1) / step)));
  };
  const double blocks = pieces(of.rows, kernel.block_q);
  const double tiles = pieces(of.keys, kernel.block_kv);
  return {of.heads * blocks * kernel.block_q * tiles * kernel.block_kv,
          of.heads * of.keys * (1 + 0.3 * (blocks - 1))};
}

/// What a CUDA row does: blocks of block_q rows, each against the keys that some of them see.
inline work_estimate estimate_on_gpu(const attention_config& config, const attention_facts& facts,
                                     int multiprocessors) noexcept {
  const attention_sizes& sizes = facts.demand.sizes;
  const bool any_head_dim = config.head_dim == 0;
  const bool decode = config.phase == attention_phase::decode;
  // Rows for any head dim are compiled for three widths, the others in steps of 16.
  const auto width = [&](int head_dim) {
    const int wider = std::max(sizes.head_dim, sizes.v_head_dim);
    if (any_head_dim) return wider <= 64 ? 64 : wider <= 128 ? 128 : 256;
    return (head_dim + 15) / 16 * 16;
  };
  const double head_dims = width(sizes.head_dim) + width(sizes.v_head_dim);
  const auto group = static_cast<double>(
      std::max<std::int64_t>(1, sizes.q_heads / std::max<std::int64_t>(1, sizes.kv_heads)));
  // The rows of a block do not all see the same keys.
  const double spread = facts.demand.mask == mask_mode::full ? 0.0 : config.block_q / group;
  const double seen = std::min(static_cast<double>(sizes.kv_len), facts.visible_keys + spread / 2);
  const auto parts = rows_and_groups(facts, seen);
  const auto schedule = schedule_sm80::shared_schedule_of(
      config, schedule_sm80::sizes_of(facts.demand), multiprocessors,
      schedule_sm80::group_warps_of(config), schedule_sm80::group_warps_of(config));
  // What sequences do not share may be another kernel's.
  const attention_config own = schedule.list.apart ? schedule_sm80::own_config(config) : config;
  const block_work own_work = work_of_blocks(own, parts[0]);
  const block_work of_groups = work_of_blocks(config, parts[1]);
  const double scores = own_work.scores + of_groups.scores;
  const double keys_read = own_work.keys_read + of_groups.keys_read;

  work_estimate work;
  work.flops = 2 * scores * head_dims;
  // Parts of the rate of mma.sync with 16-bit elements as measured on an H200 (bench/results). A
  // multiprocessor gets as much from each warp of 16 rows; f32 is three products of tf32 at half
  // the rate.
  const int decode_warps = std::max(1, config.tiling.blocks_per_sm * config.tiling.warps);
  work.product_share = decode ? std::min(0.06 * decode_warps, 0.6) : head_dims > 256 ? 0.6 : 0.7;
  if (config.type == dtype::f32) work.product_share *= 1.0 / 6;
  if (any_head_dim) work.product_share *= decode ? 0.8 : 0.65;
  const bool coded = facts.demand.pool_type != dtype::none;
  if (coded) work.product_share *= any_head_dim ? 0.3 : 0.6;
  const int idle_features =
      std::popcount(config.features.without(facts.demand.features | base_features).bits);
  work.vector_operations = 4.0 * idle_features * scores;
  const auto element = static_cast<double>(size_of(config.type));
  const double columns = sizes.head_dim + sizes.v_head_dim;
  const double of_token = element * columns;
  const double of_key = coded ? columns : of_token;
  work.bytes = of_key * keys_read + facts.heads * of_token * facts.rows;
  work.items = schedule.busy_tiles;
  work.items_per_core = std::max(1, config.tiling.blocks_per_sm);
  work.splits = std::int64_t{schedule.splits} * schedule.parts;
  work.launches = schedule.launches;
  return work;
}

/// Keys of the tiles that a warpgroup's rows are multiplied with, of which they see `seen`, the
/// first and the last row `spread` keys apart. Where rows see different keys their last one lies
/// anywhere in its tile, in steps of 16, but where tiles are as long as a warpgroup has rows: those
/// of both then end together.
inline double keys_of_sm90_tiles(const attention_config& config, const attention_facts& facts,
                                 double seen, double spread) noexcept {
  const double block = config.block_kv;
  if (facts.demand.mask == mask_mode::full || seen < block) {
    return std::max(1.0, std::ceil(seen / block)) * block;
  }
  const double end = std::fmod(64.0, block) == 0.0 ? 0.0 : (block - 16) / 2;
  // Behind a window keys begin anywhere in a tile too, and those of a warpgroup's rows apart. How
  // wider heads compare there was not measured.
  const bool begins_inside = facts.demand.window_left >= 0 && config.head_dim <= 64;
  return seen + end + (begins_inside ? spread / 2 + end : 0);
}

/// What a cuda_sm90 row does: tiles of block_q rows, of which a multiprocessor has one at a time.
inline work_estimate estimate_on_sm90(const attention_config& config, const attention_facts& facts,
                                      int multiprocessors) noexcept {
  const attention_sizes& sizes = facts.demand.sizes;
  const schedule_sm90::call_sizes cut_by = schedule_sm90::sizes_of(facts.demand);
  const auto cut = schedule_sm90::schedule_of(config, cut_by);
  const auto tiles = static_cast<double>(cut.busy_tiles);
  // A warpgroup of 64 rows passes over tiles that none of its rows sees.
  const double spread =
      facts.demand.mask == mask_mode::full ? 0.0 : 64.0 / std::max(1, cut.heads_of_tile);
  const double seen = std::min(static_cast<double>(sizes.kv_len), facts.visible_keys + spread / 2);
  const double keys = keys_of_sm90_tiles(config, facts, seen, spread);
  work_estimate work;
  work.flops = 2 * tiles * config.block_q * keys * (config.head_dim + config.v_head_dim);
  // Parts of the rate of wgmma as measured on an H200 (bench/results). The first tile of keys waits
  // for memory with nothing beside it.
  work.product_share = config.v_head_dim > 96 ? 0.72 : config.v_head_dim > 64 ? 0.62 : 0.55;
  // Plain rows with tiles of few keys wait more often.
  const bool looks = config.features.without(features_of_scores) != config.features;
  if (!looks && config.block_q >= 192 && config.block_kv == 64) {
    work.product_share *= config.block_q > 192 ? 0.925 : config.v_head_dim > 64 ? 0.985 : 0.83;
  }
  work.flops +=
      2 * tiles * config.block_q * config.block_kv * (config.head_dim + config.v_head_dim);
  // Where scores are looked at, tiles are smaller, and what is not asked for costs a branch.
  bool runs = false;
  if (looks) {
    const bool segments_alone =
        config.features.without(base_features | attention_feature::soft_cap) ==
        (attention_features{} | attention_feature::segments);
    runs = segments_alone && facts.demand.features.has(attention_feature::segments) &&
           !facts.demand.features.has(attention_feature::soft_cap) &&
           schedule_sm90::gains_by_runs(cut_by);
    work.product_share *= runs ? 0.95 : segments_alone ? 0.86 : 0.7;
  }
  const int idle_features =
      std::popcount(config.features.without(facts.demand.features | base_features).bits);
  work.vector_operations = runs ? 0.0 : 4.0 * idle_features * tiles * config.block_q * keys;
  const double of_token = 2.0 * (sizes.head_dim + sizes.v_head_dim);
  const double visits = facts.heads > 0 ? tiles / facts.heads : 1.0;
  work.bytes = facts.heads * of_token * (seen * (1 + 0.3 * (visits - 1)) + facts.rows);
  work.items = cut.busy_tiles;
  // Pages are looked up and brought in small boxes. Where keys are not split, a sequence that is
  // longer than the others, which nobody knows yet, is waited for.
  if (are_paged(config.keys)) {
    const auto listed = schedule_sm90::listed_of(config, cut_by, multiprocessors);
    if (facts.demand.prefix_groups > 0 && listed.list.used) {
      const auto parts = rows_and_groups(facts, seen);
      const auto own = listed.list.apart ? schedule_sm80::own_config(config) : config;
      const block_work own_work = work_of_blocks(own, parts[0]);
      const block_work of_groups = work_of_blocks(config, parts[1]);
      work.flops = 2 * (own_work.scores + of_groups.scores) * (config.head_dim + config.v_head_dim);
      work.bytes = of_token * (own_work.keys_read + of_groups.keys_read + facts.heads * facts.rows);
      work.items = listed.busy_tiles;
    }
    work.product_share *= 0.75;
    if (listed.list.used) {
      work.launches = listed.launches;
      // Of a few tokens of each sequence the copy unit reads more than blocks of mma.sync do.
      if (sizes.q_len > 1) work.bytes *= 0.97;
    } else if (sizes.batch > 1) {
      work.bytes *= 1.12;
    }
  }
  const auto split = schedule_sm90::splits_of(
      config, cut_by, cut, facts.demand.causal && facts.demand.top_left, multiprocessors);
  if (split.tiles == cut.work_tiles) {
    work.splits = split.parts;
    // Parts that are not as long as one another leave no multiprocessor idle.
    if (split.units > split.parts) work.items = multiprocessors / split.parts;
  }
  return work;
}

/// What a CPU row works on: rows and keys in whole register tiles, and bytes of a key with its
/// value as they are stored.
struct cpu_work {
  double rows = 0, keys = 0, head_dims = 0, key_bytes = 0;
  bool coded = false;
  schedule_cpu::call_sizes cut_by{};
};

/// `size` in whole steps.
inline double in_steps(double size, double step) noexcept {
  return static_cast<double>(static_cast<std::int64_t>((size + step - 1) / step)) * step;
}

inline cpu_work work_on_cpu(const attention_config& config, const attention_facts& facts) noexcept {
  const attention_sizes& sizes = facts.demand.sizes;
  const bool decode = config.phase == attention_phase::decode;
  const double row_step = decode ? 1 : prefill_rows(config.target);
  const double key_step = decode ? vector_floats(config.target) : register_columns(config.target);
  cpu_work work;
  work.rows = in_steps(std::max(facts.rows, 1.0), row_step);
  work.keys = in_steps(std::max(facts.visible_keys, 1.0), key_step);
  work.head_dims = sizes.head_dim + sizes.v_head_dim;
  work.coded = facts.demand.pool_type != dtype::none;
  const dtype stored = work.coded ? facts.demand.pool_type : config.type;
  work.key_bytes = work.head_dims * static_cast<double>(size_of(stored));
  work.cut_by = schedule_cpu::sizes_of(sizes, facts.demand.features.has(attention_feature::varlen));
  work.cut_by.causal = facts.demand.causal;
  return work;
}

/// Adds to `work` what decode rows do: few rows, whose keys nobody packs.
inline void add_decode_on_cpu(work_estimate& work, const attention_config& config,
                              const attention_facts& facts, const cpu_work& sized, int workers) {
  const auto cut = schedule_cpu::decode_schedule::of(config, sized.cut_by, workers);
  const auto blocks =
      static_cast<double>(std::max<std::int64_t>(1, cut.blocks(sized.cut_by.q_len)));
  const double elements = facts.heads * blocks * sized.keys * sized.head_dims;
  // Tiles of AMX make as much of sixteen rows as of one.
  const bool tiles = has_tile_products(config.target);
  if (tiles) {
    work.flops *= in_steps(sized.rows, max_decode_rows) / sized.rows;
    work.product_share = 0.6;
  }
  // No packing and no register tile. Measured on Zen 4: 1.4 operations per lane and cycle, 2.3
  // with VDPBF16PS, whatever the peak; portable rows are taken to reach half of that.
  const double per_lane = has_bf16_products(config.target)        ? 2.3
                          : config.target == backend::cpu_generic ? 0.7
                                                                  : 1.4;
  if (!tiles) work.most_products = per_lane * vector_floats(config.target);
  work.bytes = facts.heads * blocks * sized.keys * sized.key_bytes;
  // bf16 become f32 in two operations where they have no products of their own.
  const bool widens = config.type == dtype::bf16 && !has_bf16_products(config.target);
  if (widens) work.vector_operations += 2.0 * elements;
  // Scores are transposed, values interleaved, but where keys and values are read in place. What
  // is turned is read at three quarters of the speed on sixteen processors of a Xeon and on one.
  // Sixteen keys of an operand lie in one page.
  const bool in_place =
      !sized.coded && facts.demand.page_size % 16 == 0 &&
      schedule_cpu::reads_in_place(config, sized.cut_by.q_len * sized.cut_by.group);
  if (tiles && !in_place) {
    work.vector_operations += 2.0 * elements;
    work.bytes *= 1.35;
  }
  // Widened a few keys at a time.
  if (sized.coded) work.vector_operations += 0.3 * elements;
  work.items = std::max<std::int64_t>(1, cut.items(sized.cut_by.q_len));
}

/// Adds to `work` what prefill rows do: each block of rows packs the keys it sees, or the threads
/// of a head once what they share: seven operations per element, as 16 to 128 rows against 8192
/// keys on Zen 4 say, where a few rows of queries wait for keys to be packed. The panels are floats
/// and pass through the same caches as the keys. Shares of the peak rank prefill against decode
/// rows as measured there.
inline void add_prefill_on_cpu(work_estimate& work, const attention_config& config,
                               const attention_facts& facts, const cpu_work& sized, int workers) {
  const auto cut = schedule_cpu::prefill_schedule::of(config, sized.cut_by, workers);
  const auto blocks =
      static_cast<double>(std::max<std::int64_t>(1, cut.blocks(sized.cut_by.q_len)));
  work.product_share = vector_floats(config.target) >= 16 ? 0.75 : 0.55;
  work.bytes = facts.heads * sized.keys * (sized.key_bytes + 4.0 * sized.head_dims);
  const double packed = cut.shared.any() ? 1.0 : blocks;
  work.vector_operations += 7.0 * facts.heads * packed * sized.keys * sized.head_dims;
  work.items = std::max<std::int64_t>(1, cut.items(sized.cut_by.q_len));
  const attention_sizes& sizes = facts.demand.sizes;
  work.tile_bytes = static_cast<double>(cut.tile_bytes(config, sizes.head_dim, sizes.v_head_dim));
}

inline work_estimate estimate_of(const attention_config& config, const attention_facts& facts,
                                 int workers) noexcept {
  if (config.target == backend::cuda_sm90) return estimate_on_sm90(config, facts, workers);
  if (is_cuda(config.target)) return estimate_on_gpu(config, facts, workers);
  const cpu_work sized = work_on_cpu(config, facts);
  // Elementwise: maximum, exponential (10 operations) and store per score; each feature that is
  // compiled in but not needed still tests and passes over the scores.
  const int idle_features =
      std::popcount(config.features.without(facts.demand.features | base_features).bits);
  const double scores = facts.heads * sized.rows * sized.keys;
  work_estimate work;
  work.flops = 2 * scores * sized.head_dims;
  work.vector_operations = scores * (14.0 + 2.0 * idle_features);
  if (config.phase == attention_phase::decode) {
    add_decode_on_cpu(work, config, facts, sized, workers);
  } else {
    add_prefill_on_cpu(work, config, facts, sized, workers);
  }
  if (is_generic(config)) {  // loop bounds are not constants
    work.product_share *= 0.85;
    work.most_products *= 0.85;
  }
  return work;
}

}  // namespace tessera
