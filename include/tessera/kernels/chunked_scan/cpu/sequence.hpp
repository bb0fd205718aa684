// The tokens of a sequence in the order in which a scan takes them.
#pragma once

#include <cstdint>

#include <tessera/families/chunked_scan/kernel_args.hpp>

namespace tessera::kernels::chunked_scan::cpu {

struct sequence {
  std::int64_t index = 0;
  std::int64_t slot = 0;  ///< of its states
  bool has_states = true;
  std::int64_t entry = 0;  ///< of the tensors of tokens
  std::int64_t first = 0;  ///< the token that is taken first
  std::int64_t length = 0;
  std::int64_t direction = 1;

  std::int64_t token(std::int64_t step) const noexcept { return first + direction * step; }
};

inline sequence sequence_at(const chunked_scan_kernel_args& args, std::int64_t index) noexcept {
  sequence one{.index = index, .slot = index, .entry = index, .length = args.tokens};
  if (args.cu_seqlens != nullptr) {
    one.entry = 0;
    one.first = args.cu_seqlens[index];
    one.length = args.cu_seqlens[index + 1] - one.first;
  }
  if (args.slots != nullptr) {
    one.has_states = one.length > 0;
    if (one.has_states) one.slot = args.slots[index * args.slot_stride];
  }
  if (args.reverse) {
    one.first += one.length - 1;
    one.direction = -1;
  }
  return one;
}

/// Tokens that belong to sequences, packed or not; those behind them are nobody's.
inline std::int64_t tokens_in_use(const chunked_scan_kernel_args& args) noexcept {
  return args.cu_seqlens != nullptr ? std::int64_t{args.cu_seqlens[args.sequences]} : args.tokens;
}

}  // namespace tessera::kernels::chunked_scan::cpu
