// How a launch on the device is cut: sequences into chunks of tokens, which are worked on side by
// side, and where what belongs to a chunk lies in the workspace.
//
// A chunk has a slot. Packed, the first slot of sequence n is begin / chunk_tokens + n: no two
// sequences share one, and nothing has to be counted before. Some slots are nobody's.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/selective_scan/common/states.hpp>
#include <tessera/prim/common/host_device.hpp>

namespace tessera::kernels::selective_scan::sm80 {

/// The `Isa` of shared code here.
struct device_code;

inline constexpr std::int64_t chunk_tokens = 128;

/// Chunks of so many tokens: a sequence without tokens has one.
TESSERA_HD TESSERA_INLINE std::int64_t chunks_of(std::int64_t tokens) {
  return tokens > chunk_tokens ? (tokens + chunk_tokens - 1) / chunk_tokens : 1;
}

/// Slots of all chunks of a launch.
inline std::int64_t slots_of(const scan_sequences& all) {
  return all.cu_seqlens == nullptr ? all.count * chunks_of(all.tokens)
                                   : all.tokens / chunk_tokens + all.count;
}
/// Entries of tensors of tokens.
TESSERA_HD TESSERA_INLINE std::int64_t entries_of(const scan_sequences& all) {
  return all.cu_seqlens != nullptr ? 1 : all.count;
}
/// True if a sequence may have more than one chunk.
inline bool has_carries(const scan_sequences& all) {
  return all.count > 0 && all.tokens > chunk_tokens;
}

/// A sequence, inside its tensors whatever the offsets are.
struct scan_sequence {
  std::int64_t number = 0, entry = 0, begin = 0, length = 0;
  std::int64_t first_slot = 0;
  std::int64_t states_entry = 0;  ///< in tensors of states, or `no_states`
};

__device__ __forceinline__ std::int64_t offset_of(const scan_sequences& all, std::int64_t place) {
  const std::int64_t token = all.cu_seqlens[place];
  return max(std::int64_t{0}, min(token, all.tokens));
}
__device__ __forceinline__ scan_sequence sequence_at(const scan_sequences& all, std::int64_t n) {
  if (all.cu_seqlens == nullptr) return {n, n, 0, all.tokens, n * chunks_of(all.tokens), n};
  const std::int64_t begin = offset_of(all, n);
  const std::int64_t length = max(offset_of(all, n + 1) - begin, std::int64_t{0});
  return {n, 0, begin, length, begin / chunk_tokens + n, states_entry<device_code>(all, n, length)};
}
/// False of tokens that belong to no sequence.
__device__ __forceinline__ bool is_used(const scan_sequences& all, std::int64_t token) {
  return all.cu_seqlens == nullptr ||
         (token >= offset_of(all, 0) && token < offset_of(all, all.count));
}

/// A chunk: tokens [begin, begin + length) of an entry.
struct scan_chunk {
  std::int64_t entry = 0, begin = 0;
  std::int64_t states_entry = 0;  ///< that of its sequence
  int length = 0;
  bool exists = false, is_first = false, is_last = false;
};

__device__ __forceinline__ scan_chunk chunk_at(const scan_sequences& all, std::int64_t slot) {
  scan_sequence own;
  if (all.cu_seqlens == nullptr) {
    own = sequence_at(all, slot / chunks_of(all.tokens));
  } else {
    std::int64_t low = 0, high = all.count;  // the last sequence whose slots begin here or before
    while (high - low > 1) {
      const std::int64_t middle = (low + high) / 2;
      (offset_of(all, middle) / chunk_tokens + middle <= slot ? low : high) = middle;
    }
    own = sequence_at(all, low);
  }
  const std::int64_t chunks = chunks_of(own.length), at = slot - own.first_slot;
  if (at < 0 || at >= chunks) return {};
  const std::int64_t left = own.length - at * chunk_tokens;
  return {.entry = own.entry,
          .begin = own.begin + at * chunk_tokens,
          .states_entry = own.states_entry,
          .length = static_cast<int>(min(left, chunk_tokens)),
          .exists = true,
          .is_first = at == 0,
          .is_last = at + 1 == chunks};
}

}  // namespace tessera::kernels::selective_scan::sm80
