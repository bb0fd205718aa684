// How a launch is cut into thread blocks. Host code without any CUDA call, so that it runs, and is
// tested, on machines without a GPU.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <tessera/families/attention/kernel_args.hpp>

namespace tessera::kernels::attention::sm80 {

/// What cutting depends on besides the arguments.
struct cut_shape {
  int block_q = 64;
  int block_kv = 64;
  int v_head_dim = 64;  ///< of the call
  int blocks_per_sm = 1;
  int multiprocessors = 1;
};

struct cut {
  int row_blocks = 0;      ///< of a dense entry
  std::int64_t items = 0;  ///< thread blocks of one split
  int section = 1;         ///< heads worked on at the same time
  int splits = 1;
  std::int64_t rows = 0;  ///< query rows of all heads
  int parts = 1;          ///< thread blocks that merge the splits of the same rows
  int units_of_part = 1;  ///< slices of rows that each of them merges
};

inline constexpr int most_splits = 128;
inline constexpr int most_parts = 16;  ///< blocks that share the merging of the same rows
/// A split has at least this many keys: less is not worth merging.
inline constexpr std::int64_t least_keys_per_split = 128;
/// Keys and values of the heads of a section take at most this many bytes of L2 cache.
inline constexpr std::int64_t section_bytes = std::int64_t{32} << 20;

/// Thread blocks that run at the same time.
inline std::int64_t slots_of(const cut_shape& shape) {
  return std::int64_t{shape.multiprocessors} * std::max(1, shape.blocks_per_sm);
}

/// Tiles of keys that a block of rows looks at, at most (packed: on average).
inline std::int64_t tiles_of_block(const attention_kernel_args& args, const cut_shape& shape) {
  std::int64_t keys = args.kv_len;
  if (args.cu_seqlens_q != nullptr && args.batch > 0) keys = (keys + args.batch - 1) / args.batch;
  const std::int64_t rows =
      shape.block_q / std::max(1, args.q_heads / std::max(1, args.kv_heads)) + 1;
  const std::int64_t right = args.causal ? 0 : args.window_right;
  if (args.window_left < keys && right < keys) {
    keys = std::min(keys, args.window_left + right + rows);
  }
  return (keys + shape.block_kv - 1) / shape.block_kv;
}

/// The fewest splits whose last wave of thread blocks is nearly as full as that of the best number.
inline int splits_for(std::int64_t items, std::int64_t keys, std::int64_t slots) {
  if (items <= 0 || items * 10 >= slots * 8 || keys < 2 * least_keys_per_split) return 1;
  const auto most =
      static_cast<int>(std::min<std::int64_t>(most_splits, keys / least_keys_per_split));
  std::array<double, most_splits> fullness{};
  double best = 0.0;
  std::int64_t waves = 1;
  for (int splits = 1; splits <= most; ++splits) {
    const std::int64_t blocks = items * splits;
    if (blocks > waves * slots) ++waves;  // a split more is less than a wave more
    double& found = fullness[static_cast<std::size_t>(splits - 1)];
    found = static_cast<double>(blocks) / static_cast<double>(waves * slots);
    best = std::max(best, found);
  }
  int splits = 1;
  while (fullness[static_cast<std::size_t>(splits - 1)] < 0.95 * best) ++splits;
  return splits;
}

/// Numbers of splits up to which a warp merges four, two, and one slice of a row at a time; of more
/// splits groups of lanes have some each.
inline constexpr int few_splits = 4;
inline constexpr int some_splits = 8;
inline constexpr int many_splits = 16;
inline constexpr int groups_of_many = 4;

/// Groups of lanes that a warp is in to merge so many splits.
constexpr int groups_for(int splits) {
  return splits <= many_splits ? 1 : groups_of_many;
}

/// Slices of a row, each a warp's work: a lane has four columns.
constexpr int slices_of_row(int columns, int groups) {
  const int each = 128 / groups;
  return (columns + each - 1) / each;
}

/// Shares the merging of a block of rows: between as many blocks as have work for a warp, if all
/// blocks of the launch run at the same time; else the last one has all, since a block that waits
/// keeps others from running.
inline void cut_merging(cut& pieces, const attention_kernel_args& args, const cut_shape& shape) {
  const std::int64_t group = args.q_heads / args.kv_heads;
  const std::int64_t rows = args.cu_seqlens_q != nullptr
                                ? shape.block_q
                                : std::min<std::int64_t>(shape.block_q, args.q_len * group);
  const auto units =
      static_cast<int>(rows) * slices_of_row(args.v_head_dim, groups_for(pieces.splits));
  const bool together = pieces.items * pieces.splits <= slots_of(shape);
  const int most = together ? std::min(most_parts, pieces.splits) : 1;
  const int least = std::min(units, pieces.splits <= some_splits ? 2 : 1);
  pieces.units_of_part = std::max({1, (units + most - 1) / most, least});
  pieces.parts = std::max(1, (units + pieces.units_of_part - 1) / pieces.units_of_part);
}

inline cut cut_of(const attention_kernel_args& args, const cut_shape& shape) {
  cut result;
  const std::int64_t group = args.q_heads / args.kv_heads;
  const bool packed = args.cu_seqlens_q != nullptr;
  const std::int64_t blocks = (args.q_len * group + shape.block_q - 1) / shape.block_q;
  result.rows = (packed ? args.q_len : args.batch * args.q_len) * args.q_heads;
  if (packed) {
    // Every sequence, and the rows behind the last, may end with a block that is not full.
    result.items = (args.q_len * group / shape.block_q + args.batch + 1) * args.kv_heads;
  } else {
    result.row_blocks = static_cast<int>(blocks);
    result.items = blocks * args.batch * args.kv_heads;
  }
  const std::int64_t bytes_of_head = args.kv_len * (args.head_dim + args.v_head_dim) * 2;
  const std::int64_t heads = std::max<std::int64_t>(1, args.batch * args.kv_heads);
  const std::int64_t most =
      std::clamp<std::int64_t>(section_bytes / std::max<std::int64_t>(1, bytes_of_head), 1, heads);
  // Equal sections: the blocks of a small last one would leave multiprocessors idle.
  const std::int64_t sections = (heads + most - 1) / most;
  result.section = static_cast<int>((heads + sections - 1) / sections);
  result.splits = splits_for(
      packed ? std::max(args.batch, (args.q_len * group + shape.block_q - 1) / shape.block_q) *
                   args.kv_heads
             : result.items,
      tiles_of_block(args, shape) * shape.block_kv, slots_of(shape));
  if (result.splits > 1) cut_merging(result, args, shape);
  return result;
}

/// Floats of a row's sum in the workspace.
inline int sum_stride(int v_head_dim) {
  return (v_head_dim + 7) / 8 * 8;
}

/// Workspace of a cut: sums of all rows and splits, then their maxima and denominators.
inline std::size_t workspace_of(const cut& cut, int v_head_dim) {
  if (cut.splits == 1) return 0;
  const auto parts = static_cast<std::size_t>(cut.rows * cut.splits);
  return parts * (static_cast<std::size_t>(sum_stride(v_head_dim)) + 2) * sizeof(float);
}

}  // namespace tessera::kernels::attention::sm80
