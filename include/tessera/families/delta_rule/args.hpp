// The tensors of one delta rule call, under the names that tools and files use.
//
// | tensor | shape (dense; packed) | dtype |
// |---|---|---|
// | q, k, d_q, d_k | [B,T,H,K]; [1,T,H,K] | f32, f16, bf16; all alike |
// | v, out, d_out, d_v | [B,T,HV,V]; [1,T,HV,V] | that of q |
// | g, beta, d_g, d_beta | [B,T,HV]; [1,T,HV] | f32, f16, bf16, each its own |
// | gk, d_gk | [B,T,HV,K]; [1,T,HV,K] | likewise |
// | A_log, d_A_log | [HV] | f32 |
// | dt_bias, d_dt_bias | [HV] with g, [HV,K] with gk | f32 |
// | initial_state, final_state and their gradients | [B,HV,K,V]; [N,HV,K,V] | f32 |
// | cu_seqlens | none; [N+1] | i32 |
// | state_indices | none; [N] | i32 |
// | seg_ids | [B,T]; none | i32 |
//
// The last axis of q, k, v, gk, out, the states and their gradients has stride 1; every other
// stride is free.
#pragma once

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed. The forward operations need q, k, v,
/// beta and out; the backward ones q, k, v, beta, d_out, d_q, d_k, d_v and d_beta.
struct delta_rule_args {
  tensor_view q{};
  tensor_view k{};
  tensor_view v{};   ///< value head h reads q and k of head h / (HV / H)
  tensor_view g{};   ///< log decay per head, at most 0; absent: none. With `use_gate` raw
  tensor_view gk{};  ///< log decay per key channel, instead of g; kernel_delta_attention only
  tensor_view beta{};
  tensor_view A_log{};          ///< with `use_gate`
  tensor_view dt_bias{};        ///< with `use_gate`; absent: 0
  tensor_view initial_state{};  ///< absent: 0
  tensor_view cu_seqlens{};     ///< packed: sequence n is tokens [cu[n], cu[n+1])
  /// gated_delta_rule only: the state starts anew where the id changes, a negative id is padding.
  tensor_view seg_ids{};
  tensor_view out{};
  tensor_view final_state{};  ///< optional; may be the memory of initial_state

  tensor_view d_out{};
  tensor_view d_final_state{};  ///< absent: zeros
  tensor_view d_q{};
  tensor_view d_k{};
  tensor_view d_v{};
  tensor_view d_g{};   ///< optional
  tensor_view d_gk{};  ///< optional
  tensor_view d_beta{};
  tensor_view d_A_log{};          ///< optional
  tensor_view d_dt_bias{};        ///< optional
  tensor_view d_initial_state{};  ///< optional

  /// With cu_seqlens: the states are pools [P,...], and sequence n has the state of this slot,
  /// which no other sequence with tokens has. Other slots of final_state are left as they are, and
  /// sequences without tokens have none.
  tensor_view state_indices{};
};

}  // namespace tessera
