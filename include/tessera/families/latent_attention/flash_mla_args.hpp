// The tensors of a call of flash_mla or its gradient, under the names that tools and files use.
//
// | tensor | shape | dtype |
// |---|---|---|
// | ckv | [B,S,R]: latents | f32, f16, bf16 |
// | w_kc, w_vc | [R,Hkv,dn], [R,Hkv,dv]: from latents to keys and values of a head | that of ckv |
// | k_pe | [B,S,dr]: rope part of the keys of all heads | that of ckv |
// | q_pe | [B,S,dr]: one rope query for all heads | that of ckv |
// | q | [B,S,Hq,dn]; with k_pe and without q_pe [B,S,Hq,dn+dr]: nope and rope | that of ckv |
// | bias_post | [B or 1, Hq or 1, S or 1, S or 1] | f32, f16, bf16 |
// | mask | as bias_post; nonzero = visible | u8 |
// | sinks | [Hq or 1, number of sinks] | f32 |
// | out, d_out | [B,S,Hq,dv] | that of ckv |
// | lse, d_lse | [B,Hq,S] | f32, natural logarithm |
// | gradients | as what they belong to | as what they belong to |
//
// The last axis of ckv, w_kc, w_vc, k_pe, q_pe, q, out, d_out and of their gradients has stride 1;
// every other stride is free. Query head h reads key/value head h / (Hq/Hkv).
#pragma once

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed; ckv, w_kc, w_vc, q and out are
/// required.
struct flash_mla_args {
  tensor_view ckv{};
  tensor_view w_kc{};
  tensor_view w_vc{};
  tensor_view k_pe{};
  tensor_view q_pe{};
  tensor_view q{};
  tensor_view bias_post{};  ///< added behind the soft cap; -inf masks
  tensor_view mask{};
  tensor_view sinks{};  ///< logits that enter the denominator only

  tensor_view out{};  ///< of the gradient an input, as lse is
  tensor_view lse{};  ///< log sum exp of the row, sinks included

  // Backward.
  tensor_view d_out{};
  tensor_view d_lse{};  ///< absent: zeros
  tensor_view d_ckv{};
  tensor_view d_w_kc{};
  tensor_view d_w_vc{};
  tensor_view d_k_pe{};
  tensor_view d_q_pe{};
  tensor_view d_q{};
  tensor_view d_bias_post{};  ///< optional: summed over each axis on which it has extent 1
  tensor_view d_sinks{};      ///< optional: summed over heads if it has one row
};

}  // namespace tessera
