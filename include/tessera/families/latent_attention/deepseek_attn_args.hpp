// The tensors of a call of deepseek_attn or its gradient, under the names that tools and files use.
//
// | tensor | shape | dtype |
// |---|---|---|
// | ckv | [B,S,R]: latents | f32, f16, bf16 |
// | w_kc, w_vc | [R,Hkv,dn], [R,Hkv,dv]: from latents to keys and values of a head | that of ckv |
// | k_pe | [B,S,dr]: rope part of the keys of all heads | that of ckv |
// | q_pe | [B,S,dr]: one rope query for all heads | that of ckv |
// | q | [B,S,Hq,dn]; with k_pe and without q_pe [B,S,Hq,dn+dr]: nope and rope | that of ckv |
// | q_index, k_index | [B,S,Hi,Di], [B,S,Di]: of the indexer | f32, f16, bf16, f8_e4m3, f8_e5m2 |
// | index_weights | [B,S,Hi] | f32, f16, bf16 |
// | q_index_scale, k_index_scale | [B,S,Hi], [B,S]: factors of rows of q_index and k_index | f32 |
// | indices | [B,S,n] | i32 |
// | bias_post | [B or 1, Hq or 1, S or 1, S or 1] | f32, f16, bf16 |
// | mask | as bias_post; nonzero = visible | u8 |
// | sinks | [Hq or 1, number of sinks] | f32 |
// | selected_indices | [B,S,K]: K is min(index_topk, S), one more with force_self | i32 |
// | out, d_out | [B,S,Hq,dv] | that of ckv |
// | lse, d_lse | [B,Hq,S] | f32, natural logarithm |
// | gradients | as what they belong to | as what they belong to |
//
// The last axis of latents, weights, queries, rope parts, out, d_out, q_index, k_index,
// index_weights and gradients of these has stride 1; every other stride is free. Query head h reads
// key/value head h / (Hq/Hkv); the same keys are selected for all heads of a token.
#pragma once

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed; ckv, w_kc, w_vc, q, out and either the
/// three tensors of the indexer or indices are required.
struct deepseek_attn_args {
  tensor_view ckv{};
  tensor_view w_kc{};
  tensor_view w_vc{};
  tensor_view k_pe{};
  tensor_view q_pe{};
  tensor_view q{};

  tensor_view q_index{};
  tensor_view k_index{};
  tensor_view index_weights{};
  /// Of q_index and k_index in 8 bits, or of any type: the scale of a token and index head, and of
  /// a key. Absent: 1.
  tensor_view q_index_scale{};
  tensor_view k_index_scale{};
  /// The keys of each token, in any order; -1 is none, and what is there twice counts once. In
  /// their place the indexer's tensors are absent. Required by the gradient.
  tensor_view indices{};

  // Of the logits of selected keys: what is selected does not depend on them.
  tensor_view bias_post{};  ///< added behind the soft cap; -inf masks
  tensor_view mask{};
  tensor_view sinks{};  ///< logits that enter the denominator only

  tensor_view out{};  ///< of the gradient an input, as lse is
  tensor_view lse{};  ///< log sum exp of the row, sinks included
  /// Without indices, optional output: the keys of each token, ascending, and -1 behind them.
  tensor_view selected_indices{};

  // Backward. The indexer has no gradients.
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
