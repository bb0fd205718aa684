// How a call of the mma.sync kernels (sm_80 on) is cut: work tiles, sections of heads, splits of
// the keys, and the thread blocks that combine them. Decided here and nowhere else: launch,
// workspace size, cost estimate and explain call the same functions. Host code without any CUDA
// call.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/fits.hpp>
#include <tessera/families/attention/kernel_args.hpp>

namespace tessera::schedule_sm80 {

/// Sizes and products above it count as it: problems that no device holds are estimated too.
inline constexpr std::int64_t most_of_anything = std::int64_t{1} << 48;

/// Product of two sizes.
constexpr std::int64_t product(std::int64_t a, std::int64_t b) noexcept {
  return a != 0 && b > most_of_anything / a ? most_of_anything : a * b;
}

/// What a schedule depends on besides the config and the device.
struct call_sizes {
  bool packed = false;
  std::int64_t batch = 0;     ///< batch entries, or sequences
  std::int64_t q_tokens = 0;  ///< of all entries
  std::int64_t q_len = 0;     ///< of an entry; packed: the mean, rounded up
  std::int64_t kv_len = 0;    ///< likewise, but room for keys where they lie in pages
  std::int64_t q_heads = 0;
  std::int64_t kv_heads = 0;
  int head_dim = 0;
  int v_head_dim = 0;
  /// Keys that a row sees before and behind its own position.
  std::int64_t keys_left = unbounded;
  std::int64_t keys_right = unbounded;

  /// Query heads of a key/value head: rows of the same work tile.
  constexpr std::int64_t group() const noexcept {
    return q_heads / std::max<std::int64_t>(1, kv_heads);
  }
};

constexpr call_sizes sizes_of(const attention_kernel_args& args) noexcept {
  const bool packed = args.cu_seqlens_q != nullptr;
  const std::int64_t entries = packed ? std::max<std::int64_t>(1, args.batch) : 1;
  return {
      .packed = packed,
      .batch = args.batch,
      .q_tokens = packed ? args.q_len : product(args.batch, args.q_len),
      .q_len = (args.q_len + entries - 1) / entries,
      .kv_len = args.cu_seqlens_k != nullptr ? (args.kv_len + entries - 1) / entries : args.kv_len,
      .q_heads = args.q_heads,
      .kv_heads = args.kv_heads,
      .head_dim = args.head_dim,
      .v_head_dim = args.v_head_dim,
      .keys_left = args.window_left,
      .keys_right = args.causal ? 0 : args.window_right};
}

constexpr call_sizes sizes_of(const attention_demand& demand) noexcept {
  attention_sizes sizes = demand.sizes;
  for (std::int64_t* const size :
       {&sizes.batch, &sizes.q_len, &sizes.kv_len, &sizes.q_heads, &sizes.kv_heads}) {
    *size = std::clamp<std::int64_t>(*size, 0, most_of_anything);
  }
  const auto window = [](std::int64_t keys) { return keys < 0 ? unbounded : keys; };
  return {.packed = demand.features.has(attention_feature::varlen),
          .batch = sizes.batch,
          .q_tokens = product(sizes.batch, sizes.q_len),
          .q_len = sizes.q_len,
          .kv_len = sizes.kv_len,
          .q_heads = sizes.q_heads,
          .kv_heads = sizes.kv_heads,
          .head_dim = sizes.head_dim,
          .v_head_dim = sizes.v_head_dim,
          .keys_left = window(demand.window_left),
          .keys_right = demand.causal ? 0 : window(demand.window_right)};
}

struct schedule {
  int row_blocks = 0;           ///< of a dense entry and key/value head
  std::int64_t work_tiles = 0;  ///< thread blocks of one split of the keys
  /// Work tiles that have rows; packed: if all sequences have the mean length.
  std::int64_t busy_tiles = 0;
  int section = 1;          ///< heads worked on at the same time
  int splits = 1;           ///< of the keys, each a thread block's work
  std::int64_t rows = 0;    ///< query rows of all heads
  int launches = 1;         ///< kernels one after the other: 2 if another one combines the splits
  int combine_blocks = 1;   ///< thread blocks that combine the splits of the same rows
  int slices_of_block = 1;  ///< slices of rows that each of them combines
};

inline constexpr int most_splits = 128;
inline constexpr int most_combine_blocks = 16;
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
  const int most = together ? std::min(most_combine_blocks, cut.splits) : 1;
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
  cut.splits =
      splits_for(cut.busy_tiles, keys_of_tile(kernel, sizes), slots_of(kernel, multiprocessors));
  if (cut.splits > 1) {
    const bool decode = kernel.phase == attention_phase::decode;
    cut.launches = decode && cut.work_tiles <= most_counted_tiles ? 1 : 2;
    share_combining(cut, kernel, sizes, multiprocessors);
  }
  return cut;
}

/// Floats of a row's partial output in the workspace.
constexpr int partial_stride(int v_head_dim) noexcept {
  return (v_head_dim + 7) / 8 * 8;
}

/// Bytes of workspace: partial outputs of all rows and splits, then their maxima and denominators.
constexpr std::size_t workspace_of(const schedule& cut, int v_head_dim) noexcept {
  if (cut.splits == 1) return 0;
  const auto partials = static_cast<std::size_t>(cut.rows * cut.splits);
  return partials * (static_cast<std::size_t>(partial_stride(v_head_dim)) + 2) * sizeof(float);
}

}  // namespace tessera::schedule_sm80
