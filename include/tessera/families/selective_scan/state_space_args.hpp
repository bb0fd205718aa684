// The tensors of a selective state-space call, under the names that tools and files use.
//
// | tensor | state_space_v1 | state_space_v2 | dtype |
// |---|---|---|---|
// | x, z, out | [B,T,D] | [B,T,H,P] | f32, f16, bf16; z, out that of x |
// | dt | [B,T,D] | [B,T,H] | f32 or that of x |
// | A | [D,N] | [H] | f32 or that of x |
// | B, C | [B,T,N] or [B,T,G,N] | [B,T,G,N] | that of x |
// | D, dt_bias | [D] | [H]; D also [H,P] | f32 or that of x |
// | norm_weight | none | [H*P] | f32 or that of x |
// | initial_state, final_state | [B,D,N] | [B,H,P,N] | f32 |
// | cu_seqlens | [S+1] | [S+1] | i32 |
// | state_indices | [S] | [S] | i32 |
//
// With cu_seqlens B is 1 and states are [S,...]. Channel d reads group d / (D/G), head h group
// h / (H/G). N is at most 4096. The last axis of x, z, dt, B, C, out has stride 1; every other
// stride is free.
#pragma once

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed. Forward operations have no gradients,
/// backward ones no out and final_state; gradients of optional operands are optional.
struct state_space_args {
  tensor_view x{};
  tensor_view dt{};  ///< step sizes, at least 0; with dt_softplus any numbers
  tensor_view A{};   ///< at most 0: a state decays by exp(A dt) in a step
  tensor_view B{};
  tensor_view C{};
  tensor_view D{};        ///< weight of the skip D x; of a head or of each column
  tensor_view z{};        ///< gate: the output is multiplied by silu(z)
  tensor_view dt_bias{};  ///< added to dt
  tensor_view initial_state{};
  tensor_view cu_seqlens{};  ///< packed: sequence n is tokens [cu[n], cu[n+1])
  tensor_view out{};
  tensor_view final_state{};  ///< may be the memory of initial_state
  tensor_view norm_weight{};  ///< with norm: multiplies what has been normalised

  // Backward. A gradient has the shape and type of what it belongs to.
  tensor_view d_out{};          ///< gradient of out
  tensor_view d_final_state{};  ///< gradient of final_state; absent: 0
  tensor_view d_x{};
  tensor_view d_dt{};
  tensor_view d_A{};
  tensor_view d_B{};
  tensor_view d_C{};
  tensor_view d_D{};
  tensor_view d_z{};
  tensor_view d_dt_bias{};
  tensor_view d_initial_state{};
  tensor_view d_norm_weight{};

  /// With cu_seqlens: the states are pools [L,...], and sequence n has the state of this slot,
  /// which no other sequence with tokens has. Other slots of final_state are left as they are, and
  /// sequences without tokens have none.
  tensor_view state_indices{};
};

}  // namespace tessera
