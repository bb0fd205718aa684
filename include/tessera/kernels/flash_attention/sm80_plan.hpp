// How a launch is cut into thread blocks. Host code without any CUDA call, so that it runs, and is
// tested, on machines without a GPU.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/spec/flash_attention/kernel_args.hpp>

namespace tessera::flash::sm80 {

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
};

inline constexpr int most_splits = 128;
/// A split has at least this many keys: less is not worth merging.
inline constexpr std::int64_t least_keys_per_split = 128;
/// Keys and values of the heads of a section take at most this many bytes of L2 cache.
inline constexpr std::int64_t section_bytes = std::int64_t{32} << 20;

/// Tiles of keys that a block of rows looks at, at most (packed: on average).
inline std::int64_t tiles_of_block(const flash_kernel_args& args, const cut_shape& shape) {
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
  const auto fullness = [&](int splits) {
    const std::int64_t blocks = items * splits;
    const std::int64_t waves = (blocks + slots - 1) / slots;
    return static_cast<double>(blocks) / static_cast<double>(waves * slots);
  };
  double best = 0.0;
  for (int splits = 1; splits <= most; ++splits) best = std::max(best, fullness(splits));
  for (int splits = 1; splits <= most; ++splits) {
    if (fullness(splits) >= 0.95 * best) return splits;
  }
  return 1;
}

inline cut cut_of(const flash_kernel_args& args, const cut_shape& shape) {
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
      tiles_of_block(args, shape) * shape.block_kv,
      std::int64_t{shape.multiprocessors} * std::max(1, shape.blocks_per_sm));
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

}  // namespace tessera::flash::sm80
