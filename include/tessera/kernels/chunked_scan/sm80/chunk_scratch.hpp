// The workspace of a way back by chunks: shares of the gradients of keys and values that several
// heads read, states that are kept, and what adds up the shares.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_scans.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/recurrence/common/sequence.hpp>
#include <tessera/kernels/recurrence/sm80/head_group.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

/// The workspace of a way back by chunks, placed from `base` on; null: nothing is placed.
struct chunk_scratch {
  chunked_scan_rows d_k{}, d_v{};  ///< of each head of queries
  chunk_states kept{};
  float* of_u = nullptr;   ///< what chunks have for the gradient of the bonus
  bool of_decays = false;  ///< gradients of decays, or of the bonus, are wanted
  std::size_t bytes = 0;

  /// `key_dim`: of the row.
  chunk_scratch(const chunked_scan_kernel_args& call, int key_dim, std::byte* base)
      : d_k(call.d_k),
        d_v(call.d_v),
        of_decays(call.d_g.data != nullptr || call.d_gk.data != nullptr ||
                  call.d_u.data != nullptr) {
    cuda::workspace_parts parts(base);
    const std::int64_t entries = recurrence::entries_of(call);
    if (call.heads != call.kv_heads) {
      const auto share = [&](chunked_scan_rows& rows, std::int64_t columns) {
        float* numbers = nullptr;
        parts.take(numbers, entries * call.tokens * call.heads * columns);
        rows = {.data = numbers,
                .type = dtype::f32,
                .entry = call.tokens * call.heads * columns,
                .token = call.heads * columns,
                .head = columns};
      };
      share(d_k, call.keys);
      share(d_v, call.values);
    }
    if (of_decays) {
      const std::int64_t of_entry = (call.tokens + chunk_states::tokens - 1) / chunk_states::tokens;
      const bool packed = call.cu_seqlens != nullptr;
      const std::int64_t chunks = packed ? of_entry + call.sequences : entries * of_entry;
      const std::int64_t tiles = chunks * call.heads * ((call.keys + 15) / 16);
      parts.take(kept.of_s, tiles * key_dim * 2);
      parts.take(kept.of_d, tiles * key_dim * 2);
      kept.entry = packed ? 0 : of_entry;
      if (call.d_u.data != nullptr) parts.take(of_u, chunks * call.heads * call.keys);
    }
    bytes = parts.bytes();
  }
};

/// Gradients of keys and values from the shares of the heads that read them.
inline cudaError_t add_head_shares(const chunked_scan_kernel_args& call,
                                   const chunk_scratch& scratch, cudaStream_t stream) {
  if (call.heads == call.kv_heads) return cudaSuccess;
  const auto add = [&](const chunked_scan_rows& from, const chunked_scan_rows& to,
                       std::int64_t columns) {
    return recurrence::sm80::launch_head_shares<chunked_scan_rows>(
        {.shares = static_cast<const float*>(from.data),
         .tokens = call.tokens,
         .entries = recurrence::entries_of(call),
         .heads = call.heads,
         .group = call.heads / call.kv_heads,
         .columns = columns},
        to, stream);
  };
  const cudaError_t code = add(scratch.d_k, call.d_k, call.keys);
  return code == cudaSuccess ? add(scratch.d_v, call.d_v, call.values) : code;
}

}  // namespace tessera::kernels::chunked_scan::sm80
