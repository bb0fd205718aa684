// How a CPU launch of the gradients is cut into work items, as pure functions of config and sizes:
// neither threads nor the other entries of a batch change the bits of a result.
#pragma once

#include <cstdint>

#include <tessera/families/attention/schedule_cpu.hpp>
#include <tessera/families/attention_backward/kernel_args.hpp>

namespace tessera::schedule_backward {

using schedule_cpu::ceil_div;

/// The keys of one sequence and key/value head in parts, of which each has its own sum of d_q.
struct key_parts {
  static constexpr std::int64_t enough_heads = 8;  ///< that keep as many threads busy
  static constexpr std::int64_t least_keys = 1024;

  std::int64_t count = 1;
  std::int64_t keys = 0;  ///< of each part but the last: whole tiles

  /// No sequence has more parts.
  [[gnu::always_inline]] static constexpr std::int64_t room_for(std::int64_t kv_heads) noexcept {
    return kv_heads >= enough_heads || kv_heads < 1 ? 1 : ceil_div(enough_heads, kv_heads);
  }
  [[gnu::always_inline]] static constexpr key_parts of(std::int64_t k_len, std::int64_t kv_heads,
                                                       int block_kv) noexcept {
    const std::int64_t wanted = ceil_div(k_len, least_keys);
    const std::int64_t most = room_for(kv_heads);
    const std::int64_t parts = wanted < 1 ? 1 : wanted < most ? wanted : most;
    const std::int64_t tiles = ceil_div(k_len < 1 ? 1 : k_len, block_kv);
    const std::int64_t keys = ceil_div(tiles, parts) * block_kv;
    return {ceil_div(tiles * block_kv, keys), keys};
  }
};

/// Rows of q that the sums of d_q have room for: of all entries, or of all packed sequences.
[[gnu::always_inline]] constexpr std::int64_t all_rows(const attention_kernel_args& args) noexcept {
  return args.cu_seqlens_q != nullptr ? args.q_len : args.batch * args.q_len;
}

}  // namespace tessera::schedule_backward
