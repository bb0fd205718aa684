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
// | out | [B,T,H,V]; [1,T,H,V] | that of q |
//
// The last axis of all but g and g_gamma has stride 1; every other stride is free. final_state may
// be initial_state itself.
#pragma once

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed. `gla` has no g and gv,
/// `lightning_attn` has g_gamma alone.
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
};

}  // namespace tessera
