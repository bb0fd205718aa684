// The tensors of one delta rule call over a pool of states, and the options of its second form,
// under the names that tools and files use.
//
// | tensor | shape | dtype |
// |---|---|---|
// | q, k, d_q, d_k | [T,H,K] | f32, f16, bf16; all alike |
// | v, out, d_out, d_v | [T,HV,V] | that of q |
// | g, beta, d_g, d_beta | [T,HV] | f32, f16, bf16, each its own |
// | A_log, dt_bias, d_A_log, d_dt_bias | [HV] | f32 |
// | state_pool, d_state_pool | [P,HV,K,V] | f32, f16, bf16 |
// | cu_seqlens | [N+1] | i32 |
// | state_indices, has_initial_state | [N] | i32 |
//
// The last axis of q, k, v, out, the pools and their gradients has stride 1, and so has cu_seqlens;
// every other stride is free.
#pragma once

#include <cstdint>
#include <optional>

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed. The call needs q, k, v, beta,
/// state_pool, cu_seqlens, state_indices and out; its gradient d_out, d_q, d_k, d_v and d_beta in
/// place of out.
struct ragged_delta_rule_args {
  tensor_view q{};
  tensor_view k{};
  tensor_view v{};  ///< value head h reads q and k of head h / (HV / H)
  tensor_view g{};  ///< log decay, at most 0; absent: none. With `use_gate` raw
  tensor_view beta{};
  tensor_view A_log{};       ///< with `use_gate`
  tensor_view dt_bias{};     ///< with `use_gate`; absent: 0
  tensor_view state_pool{};  ///< read and written; the gradient reads what the call read
  tensor_view cu_seqlens{};  ///< sequence n is tokens [cu[n], cu[n+1])
  /// Sequence n has the state of this slot, and no other sequence with tokens has. A sequence
  /// without tokens has none: its entry is not looked at.
  tensor_view state_indices{};
  tensor_view has_initial_state{};  ///< 0: the sequence starts from 0; absent: none does
  tensor_view out{};

  tensor_view d_out{};
  tensor_view d_q{};
  tensor_view d_k{};
  tensor_view d_v{};
  tensor_view d_g{};  ///< optional
  tensor_view d_beta{};
  tensor_view d_A_log{};    ///< optional
  tensor_view d_dt_bias{};  ///< optional
  /// Optional: before, the gradient of the pool behind the call (absent: zeros); behind, that of
  /// the pool in front of it.
  tensor_view d_state_pool{};
};

/// The same with q, k and v side by side and gates that are raw.
///
/// | tensor | shape | dtype |
/// |---|---|---|
/// | mixed_qkv, d_mixed_qkv | [T,C], C = 2 H K + HV V: heads of q, of k, of v | f32, f16, bf16 |
/// | a, b, d_a, d_b | [T,HV] | f32, f16, bf16, each its own |
/// | out, d_out | [T,HV,V] | that of mixed_qkv |
struct ragged_delta_rule_v2_args {
  tensor_view mixed_qkv{};
  tensor_view a{};  ///< log decay = -exp(A_log) softplus(a + dt_bias)
  tensor_view b{};  ///< beta = sigmoid(b)
  tensor_view A_log{};
  tensor_view dt_bias{};
  tensor_view state_pool{};
  tensor_view cu_seqlens{};
  tensor_view state_indices{};
  tensor_view has_initial_state{};
  tensor_view out{};

  tensor_view d_out{};
  tensor_view d_mixed_qkv{};
  tensor_view d_a{};
  tensor_view d_b{};
  tensor_view d_A_log{};       ///< optional
  tensor_view d_dt_bias{};     ///< optional
  tensor_view d_state_pool{};  ///< optional
};

struct ragged_delta_rule_v2_options {
  std::int64_t num_qk_heads = 0;  ///< H; 0: as many as value heads
  std::int64_t head_dim_qk = 0;   ///< K; 0: that of state_pool
  std::optional<double> scale{};  ///< of q; unset: 1 / sqrt(K)
  /// q and k become x / sqrt(sum x^2 + 1e-6), in front of the scale.
  bool use_qk_l2norm = true;
  bool apply_silu = false;  ///< to mixed_qkv, before anything else

  friend bool operator==(const ragged_delta_rule_v2_options&,
                         const ragged_delta_rule_v2_options&) = default;
};

}  // namespace tessera
