// The tensors of one RWKV-7 call, and its options, under the names that tools and files use.
//
// | tensor | shape (dense; packed) | dtype |
// |---|---|---|
// | r, k, a, b, kk and their gradients | [B,T,H,K]; [1,T,H,K] | f32, f16, bf16; all alike |
// | v, out, d_v, d_out | [B,T,H,V]; [1,T,H,V] | that of r |
// | w, d_w | [B,T,H,K]; [1,T,H,K] | f32, f16, bf16 |
// | initial_state, final_state and their gradients | [B,H,K,V]; [N,H,K,V] | f32 |
// | cu_seqlens | none; [N+1] | i32 |
// | state_indices | none; [N] | i32 |
//
// The last axis of each has stride 1; every other stride is free.
#pragma once

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed. `rwkv7` needs r, w, k, v, a, b and out,
/// `rwkv7_mul` kk in place of b; their gradients need d_out and a gradient for each of these.
struct rwkv7_args {
  tensor_view r{};
  tensor_view w{};  ///< log decay, at most 0
  tensor_view k{};
  tensor_view v{};
  tensor_view a{};   ///< reads the state before it decays; `rwkv7_mul`: the rate of what is written
  tensor_view b{};   ///< writes what was read
  tensor_view kk{};  ///< `rwkv7_mul`: reads as -kk, writes as kk * a
  tensor_view initial_state{};  ///< absent: 0
  tensor_view cu_seqlens{};     ///< packed: sequence n is tokens [cu[n], cu[n+1])
  tensor_view out{};
  tensor_view final_state{};  ///< optional; may be the memory of initial_state

  tensor_view d_out{};
  tensor_view d_final_state{};  ///< absent: zeros
  tensor_view d_r{};
  tensor_view d_w{};
  tensor_view d_k{};
  tensor_view d_v{};
  tensor_view d_a{};
  tensor_view d_b{};
  tensor_view d_kk{};
  tensor_view d_initial_state{};  ///< optional

  /// With cu_seqlens: the states are pools [P,...], and sequence n has the state of this slot,
  /// which no other sequence with tokens has. Other slots of final_state are left as they are, and
  /// sequences without tokens have none.
  tensor_view state_indices{};
};

struct rwkv7_options {
  double scale = 1;      ///< of r
  bool reverse = false;  ///< from the last token of each sequence to its first

  friend bool operator==(const rwkv7_options&, const rwkv7_options&) = default;
};

}  // namespace tessera
