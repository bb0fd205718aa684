// What a kernel of linear attention with decay receives: raw pointers, element strides and sizes of
// one launch. Made from validated views by `lower`; a kernel checks nothing again.
//
// Every operation of the family is this recurrence over the tokens of a sequence, with a state S
// [K,V] per head, a_t [K] = exp(g_t + gk_t + g_gamma) and b_t [V] = exp(gv_t):
//
//   S_t = (a_t b_t^T) S_{t-1} + k_t v_t^T     (elementwise product)      out_t = scale S_t^T q_t
//
// With a bonus u [K] the current token is read through it instead of the state:
//
//   out_t = scale (S_{t-1} + (u k_t) v_t^T)^T q_t
#pragma once

#include <cstdint>

#include <tessera/spec/dtype.hpp>

namespace tessera {

/// A tensor indexed by (entry, token, head); its columns, if any, are contiguous.
struct chunked_scan_rows {
  void* data = nullptr;
  dtype type = dtype::none;
  std::int64_t entry = 0, token = 0, head = 0;
};

/// f32, indexed by (sequence or slot of a pool, head, key channel); value channels are contiguous.
struct chunked_scan_states {
  float* data = nullptr;
  std::int64_t sequence = 0, head = 0, key = 0;
};

struct chunked_scan_kernel_args {
  chunked_scan_rows q{}, k{}, v{}, out{};
  chunked_scan_rows g{}, gk{}, gv{};  ///< absent: null, no decay
  chunked_scan_rows u{};              ///< bonus, of each head; absent: null
  const float* g_gamma = nullptr;
  std::int64_t gamma_sequence = 0, gamma_head = 0;
  chunked_scan_states initial_state{}, final_state{};

  // Backward: incoming gradients, and those that are wanted; others are null.
  chunked_scan_rows d_out{}, d_q{}, d_k{}, d_v{}, d_g{}, d_gk{}, d_gv{}, d_u{};
  chunked_scan_states d_final_state{}, d_initial_state{};

  /// Packed, contiguous; tokens behind the last sequence are nobody's.
  const std::int32_t* cu_seqlens = nullptr;
  /// Of a pool: the slot of a sequence's state; null: sequence n has state n. A packed sequence
  /// without tokens has none then.
  const std::int32_t* slots = nullptr;
  std::int64_t slot_stride = 0;
  std::int64_t slot_count = 0;  ///< of the pool

  std::int64_t sequences = 0;  ///< entries, or sequences when packed
  std::int64_t tokens = 0;     ///< of an entry; packed: in total
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< head h reads k and v of head h / (heads / kv_heads)
  std::int64_t keys = 0;      ///< K
  std::int64_t values = 0;    ///< V
  float scale = 1.0f;
  bool raw_decay = false;  ///< the log decay is -exp(gk)
  bool reverse = false;    ///< tokens go from the last of a sequence to its first
};

}  // namespace tessera
