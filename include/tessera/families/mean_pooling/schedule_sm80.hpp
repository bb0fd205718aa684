// How a mean pooling launch is cut on a GPU. One constexpr function decides; launch, workspace and
// cost ask it.
//
// A segment is what one mean is made of: a sequence or a chunk. Its sum is that of its pieces, each
// a run of its tokens; where it is cut depends on its own length and on the size of a token alone,
// so that a result has the same bits whatever else is in the batch. Which thread block sums a piece
// follows from the window of tokens, counted over all sequences, in which the piece begins.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/mean_pooling/config.hpp>
#include <tessera/families/mean_pooling/kernel_args.hpp>
#include <tessera/prim/common/host_device.hpp>

namespace tessera {

/// Threads of a block.
inline constexpr int pooling_threads_sm80 = 256;
/// Bytes of a load or store where addresses allow it.
inline constexpr int pooling_access_bytes_sm80 = 16;
/// Threads side by side along the columns, at most: 1 KiB of a token in wide accesses.
inline constexpr int most_pooling_lanes_sm80 = 64;
/// Segments of so many tokens are summed by one group of lanes alone, longer ones by all groups of
/// the block.
inline constexpr std::int64_t pooling_group_tokens_sm80 = 32;
/// Columns of a block that adds up pieces, and groups of its threads.
inline constexpr int pooling_combined_columns_sm80 = 64;

/// Shared memory of a row's blocks: the sums of all threads, which groups of lanes exchange.
constexpr int shared_memory_bytes(const mean_pooling_config& config) {
  if (config.pass == pooling_pass::backward) return 0;
  const int vector = pooling_access_bytes_sm80 / static_cast<int>(size_of(config.type));
  return pooling_threads_sm80 * vector * static_cast<int>(sizeof(float));
}

/// Where a token lies, as far as the schedule depends on it.
struct pooling_access_sm80 {
  int element_bytes = 4;
  bool wide = true;  ///< every row starts and ends at a multiple of 16 bytes
};

struct pooling_schedule_sm80 {
  int vector = 1;               ///< elements of an access
  int lanes = 1;                ///< threads side by side along the columns
  int groups = 1;               ///< of lanes, each with tokens of its own
  std::int64_t head_slabs = 1;  ///< lanes * vector columns each, of a head
  std::int64_t slabs = 0;       ///< of all heads
  std::int64_t tokens = 0;      ///< of all sequences
  std::int64_t piece = 1;       ///< tokens of a piece, at least
  std::int64_t window = 1;      ///< tokens
  std::int64_t windows = 0;
  std::int64_t slot_tokens = 1;  ///< no two later pieces begin so near to each other
  std::int64_t slots = 0;        ///< partial sums; 0: every segment is one piece
  std::int64_t combine_window = 1;
  std::int64_t combine_windows = 0;
  std::int64_t combine_slabs = 0;

  constexpr std::int64_t items() const { return windows * slabs; }
  constexpr std::int64_t combine_items() const { return combine_windows * combine_slabs; }

  /// Tokens of the pieces of a segment. Up to 4 * piece tokens it has one, since reading the sums
  /// of two again costs as much as summing them side by side saves; then at most 512.
  TESSERA_HD constexpr std::int64_t piece_of(std::int64_t segment) const {
    if (segment <= 4 * piece) return segment > 0 ? segment : 1;
    return piece * ((segment - 1) / (piece * 512) + 1);
  }
  /// Pieces of a segment; an empty one has one.
  TESSERA_HD constexpr std::int64_t pieces_of(std::int64_t segment) const {
    const std::int64_t each = piece_of(segment);
    return segment <= each ? 1 : (segment - 1) / each + 1;
  }
  /// Where the sum of a piece is kept, given the first token of the piece among all.
  TESSERA_HD constexpr std::int64_t slot_of(std::int64_t first_token, std::int64_t index) const {
    return first_token / slot_tokens * 2 + (index > 0 ? 1 : 0);
  }
};

/// Lanes along the columns of a head, and the slabs that they take.
constexpr void cut_columns(pooling_schedule_sm80& cut, std::int64_t columns) {
  const std::int64_t vectors = (columns - 1) / cut.vector + 1;
  cut.head_slabs = (vectors - 1) / most_pooling_lanes_sm80 + 1;
  cut.lanes = static_cast<int>((vectors - 1) / cut.head_slabs + 1);
  cut.groups = pooling_threads_sm80 / cut.lanes;
}

constexpr pooling_schedule_sm80 pooling_schedule_of(const mean_pooling_kernel_args& args,
                                                    pooling_access_sm80 access) {
  pooling_schedule_sm80 cut;
  const std::int64_t columns = args.columns > 0 ? args.columns : 1;
  cut.tokens = args.cu_seqlens != nullptr ? args.tokens : args.sequences * args.tokens;
  // Pieces are those of tokens without gaps in any case: where tensors lie changes neither how sums
  // are cut nor the workspace of a plan.
  cut.vector = pooling_access_bytes_sm80 / access.element_bytes;
  cut_columns(cut, columns * std::max<std::int64_t>(args.heads, 1));
  cut.piece = pooling_group_tokens_sm80 * cut.groups;
  if (!access.wide) cut.vector = 1;
  cut_columns(cut, columns);
  cut.slabs = args.heads * cut.head_slabs;
  // 128 KiB of wide accesses or more; some thousand windows, since one in which no piece begins
  // costs a block about a microsecond.
  const std::int64_t pieces = (cut.tokens / 4096 + cut.piece - 1) / cut.piece;
  cut.window = cut.piece * std::max<std::int64_t>(pieces, 1);
  cut.windows = cut.tokens / cut.window + 1;
  const std::int64_t longest = args.chunk > 0 ? std::min(args.chunk, args.tokens) : args.tokens;
  if (cut.pieces_of(longest) == 1) return cut;
  const bool equal = args.cu_seqlens == nullptr && args.chunk == 0;
  cut.slot_tokens = equal ? cut.piece_of(longest) : cut.piece;
  cut.slots = 2 * (cut.tokens / cut.slot_tokens + 1);
  cut.combine_window = 16 * cut.piece;
  cut.combine_windows = cut.tokens / cut.combine_window + 1;
  cut.combine_slabs = (args.heads * args.columns - 1) / pooling_combined_columns_sm80 + 1;
  return cut;
}

}  // namespace tessera
