// The tensors of an rwkv4 call, under the names that tools and files use.
//
// | tensor | shape | dtype |
// |---|---|---|
// | k, v, out | [B,T,C] | f32, f16, bf16; v, out that of k |
// | w, u | [C] | f32 or that of k |
// | initial_state, final_state | [B,3,C] | f32 |
// | cu_seqlens | [S+1] | i32 |
// | state_indices | [S] | i32 |
//
// With cu_seqlens B is 1 and states are [S,3,C]: rows alpha, beta, eps of the sums
// alpha = e^-eps sum of weights times v and beta = e^-eps sum of weights. The last axis of k, v,
// out has stride 1; every other stride is free.
#pragma once

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed.
struct rwkv4_args {
  tensor_view k{};
  tensor_view v{};
  tensor_view w{};              ///< raw: the log decay of a step is -exp(w)
  tensor_view u{};              ///< added to the key of the current token
  tensor_view initial_state{};  ///< absent: (0, 0, -1e30)
  tensor_view cu_seqlens{};     ///< packed: sequence n is tokens [cu[n], cu[n+1])
  tensor_view out{};
  tensor_view final_state{};  ///< may be the memory of initial_state

  // Backward. A gradient has the shape and type of what it belongs to.
  tensor_view d_out{};          ///< gradient of out
  tensor_view d_final_state{};  ///< gradient of final_state; absent: 0
  tensor_view d_k{};
  tensor_view d_v{};
  tensor_view d_w{};
  tensor_view d_u{};
  tensor_view d_initial_state{};

  /// With cu_seqlens: the states are pools [P,...], and sequence n has the state of this slot,
  /// which no other sequence with tokens has. Other slots of final_state are left as they are, and
  /// sequences without tokens have none.
  tensor_view state_indices{};
};

}  // namespace tessera
