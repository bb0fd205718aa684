// Who sees whom, as far as it follows from lengths, the causal diagonal and the window: an interval
// of keys per query row. The text is shared by every backend.
#pragma once

#include <cstdint>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/prim/common/host_device.hpp>

namespace tessera::prim {

/// One batch entry, or one packed sequence.
struct sequence {
  std::int64_t index = 0;    ///< b or n
  std::int64_t q_begin = 0;  ///< first row in the packed tensor; 0 when dense
  std::int64_t k_begin = 0;
  std::int64_t q_len = 0;  ///< used rows
  std::int64_t k_len = 0;  ///< used keys
};

/// The sequence number `index` of a launch.
TESSERA_HD constexpr sequence sequence_of(const attention_kernel_args& args,
                                          std::int64_t index) noexcept {
  if (args.cu_seqlens_q != nullptr) {
    return {index, args.cu_seqlens_q[index], args.cu_seqlens_k[index],
            args.cu_seqlens_q[index + 1] - args.cu_seqlens_q[index],
            args.cu_seqlens_k[index + 1] - args.cu_seqlens_k[index]};
  }
  return {index, 0, 0, args.seqlens_q != nullptr ? args.seqlens_q[index] : args.q_len,
          args.seqlens_k != nullptr ? args.seqlens_k[index] : args.kv_len};
}

/// Keys [begin, end).
struct key_interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  TESSERA_HD constexpr bool empty() const noexcept { return begin >= end; }
  friend constexpr bool operator==(key_interval, key_interval) = default;
};

TESSERA_HD constexpr key_interval intersection(key_interval a, key_interval b) noexcept {
  return {a.begin > b.begin ? a.begin : b.begin, a.end < b.end ? a.end : b.end};
}

/// Row -> interval of visible keys of one sequence, for rows and keys local to it.
template <mask_mode Mode>
struct row_visibility {
  std::int64_t k_len = 0;
  std::int64_t offset = 0;  ///< aligned position of row 0
  bool causal = false;
  std::int64_t window_left = unbounded;
  std::int64_t window_right = unbounded;

  TESSERA_HD static constexpr row_visibility of(const attention_kernel_args& args,
                                                const sequence& seq) noexcept {
    return {seq.k_len, args.top_left ? 0 : seq.k_len - seq.q_len, args.causal, args.window_left,
            args.window_right};
  }

  /// Keys that row `row` sees. Both ends grow with the row, so a block of rows sees no key outside
  /// [begin of its first row, end of its last row).
  TESSERA_HD constexpr key_interval keys_of(std::int64_t row) const noexcept {
    key_interval keys{0, k_len};
    if constexpr (Mode == mask_mode::full) return keys;
    const std::int64_t position = row + offset;
    if (causal && position + 1 < keys.end) keys.end = position + 1;
    if constexpr (Mode == mask_mode::window) {
      if (window_right < keys.end - 1 - position) keys.end = position + window_right + 1;
      if (window_left < position) keys.begin = position - window_left;
      if (keys.begin > k_len) keys.begin = k_len;
    }
    if (keys.end < keys.begin) keys.end = keys.begin;
    return keys;
  }
};

/// How much of a tile is visible.
enum class tile_visibility : std::uint8_t { skip, partial, full };

/// Query rows x keys of one tile, local to the sequence, for a range of query heads.
struct score_tile {
  std::int64_t entry = 0;  ///< batch entry or sequence number
  int head_begin = 0, head_end = 0;
  std::int64_t query_begin = 0, query_end = 0;
  std::int64_t key_begin = 0, key_end = 0;
};

}  // namespace tessera::prim
