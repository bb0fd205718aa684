// The tensors of one call of linear attention with decay, under the names that tools and files use.
//
// | tensor | dense; packed | dtype |
// |---|---|---|
// | q | [B,T,H,K]; [1,T,H,K] | f32, f16, bf16 |
// | k, v | [B,T,Hkv,K], [B,T,Hkv,V]; B is 1: head h reads head h / (H / Hkv) | that of q |
// | g, gk, gv | [B,T,H], [B,T,H,K], [B,T,H,V]; B is 1: log decays, at most 0 | f32, or that of q |
// | g_gamma | [H] or [B,H]; [H] or [N,H]: a log decay that is constant in time | f32 |
// | initial_state, final_state | [B,H,K,V]; [N,H,K,V] | f32 |
// | cu_seqlens | none; [N+1] | i32 |
// | state_indices | none; [N] | i32 |
// | out | [B,T,H,V]; [1,T,H,V] | that of q |
//
// Gradients have the shape and the dtype of what they belong to, d_out and d_final_state those of
// out and final_state.
//
// The last axis of all but g, d_g and g_gamma has stride 1; every other stride is free. final_state
// may be initial_state itself.
#pragma once

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed. `gla` has no g and gv,
/// `lightning_attn` has g_gamma alone. The
/// backward operations take the inputs of the forward ones and d_out.
struct recurrent_args {
  tensor_view q{};
  tensor_view k{};
  tensor_view v{};
  tensor_view g{};              ///< decay of a token's head
  tensor_view gk{};             ///< decay of each key channel
  tensor_view gv{};             ///< decay of each value channel
  tensor_view g_gamma{};        ///< decay of a head; is not differentiated
  tensor_view initial_state{};  ///< absent: zeros
  tensor_view cu_seqlens{};     ///< packed: sequence n is tokens [cu[n], cu[n+1])
  tensor_view out{};
  tensor_view final_state{};  ///< optional output: the state behind the last token
  tensor_view d_out{};
  tensor_view d_final_state{};  ///< absent: zeros
  tensor_view d_q{};
  tensor_view d_k{};
  tensor_view d_v{};
  tensor_view d_g{};  ///< this and the following are optional outputs
  tensor_view d_gk{};
  tensor_view d_gv{};
  tensor_view d_initial_state{};

  /// With cu_seqlens: the states are pools [P,...], and sequence n has the state of this slot,
  /// which no other sequence with tokens has. Other slots of final_state are left as they are, and
  /// sequences without tokens have none.
  tensor_view state_indices{};
};

}  // namespace tessera
