// How a CPU launch of the gradients is cut into work items, as pure functions of config and sizes:
// neither threads nor the other entries of a batch change the bits of a result.
#pragma once

#include <cstdint>

#include <tessera/families/attention/schedule_cpu.hpp>
#include <tessera/families/attention_backward/kernel_args.hpp>

namespace tessera::schedule_backward {

using schedule_cpu::ceil_div;

/// Tiles of keys of one sequence and key/value head, each a work item. They add to d_q in their
/// order, whichever threads have them.
[[gnu::always_inline]] constexpr std::int64_t tiles_of(std::int64_t k_len, int block_kv) noexcept {
  return k_len < 1 ? 1 : ceil_div(k_len, block_kv);
}

/// Rows of q that the sums of d_q have room for: of all entries, or of all packed sequences.
[[gnu::always_inline]] constexpr std::int64_t all_rows(const attention_kernel_args& args) noexcept {
  return args.cu_seqlens_q != nullptr ? args.q_len : args.batch * args.q_len;
}

}  // namespace tessera::schedule_backward
