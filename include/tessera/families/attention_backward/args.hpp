// The tensors of one call of a gradient of attention, under the names that tools and files use.
//
// The first thirteen are those of the forward call (families/attention/args.hpp). Further ones:
//
// | tensor | shape (dense; packed) | dtype |
// |---|---|---|
// | out, d_out | [B,Sq,Hq,Dv]; [Tq,Hq,Dv] | that of q |
// | lse, row_max, d_lse | [B,Hq,Sq]; [Hq,Tq] | f32 |
// | d_weights | [B,Hq,Sq,Sk] | f32 or that of q |
// | d_q, d_k, d_v | as q, k, v | that of q |
// | d_bias_pre, d_bias_post | [B or 1, Hq or 1, Sq or 1, Sk or 1] | that of the bias |
// | d_sinks | [Hq or 1, number of sinks] | f32 |
//
// The last axis of q, k, v, out, d_out, d_weights and of the gradients of q, k and v has stride 1;
// every other stride is free.
#pragma once

#include <tessera/families/attention/args.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed. q, k, v, out, lse, d_out, d_q, d_k and
/// d_v are required.
struct attention_backward_args {
  tensor_view q{};
  tensor_view k{};
  tensor_view v{};
  tensor_view bias_pre{};
  tensor_view bias_post{};
  tensor_view mask{};
  tensor_view q_segment_ids{};
  tensor_view kv_segment_ids{};
  tensor_view sinks{};
  tensor_view cu_seqlens_q{};
  tensor_view cu_seqlens_k{};
  tensor_view seqlens_q{};
  tensor_view seqlens_k{};

  tensor_view out{};      ///< what the forward call wrote
  tensor_view lse{};      ///< likewise, sinks included
  tensor_view row_max{};  ///< likewise; where `normalize` is false
  tensor_view d_out{};
  tensor_view d_lse{};      ///< absent: zeros
  tensor_view d_weights{};  ///< `attention_backward` only; absent: zeros

  tensor_view d_q{};
  tensor_view d_k{};
  tensor_view d_v{};
  tensor_view d_bias_pre{};   ///< optional: summed over each axis on which it has extent 1
  tensor_view d_bias_post{};  ///< likewise
  tensor_view d_sinks{};      ///< optional: summed over heads if it has one row
};

/// The forward call that the gradient belongs to, as far as rows are chosen and scores computed
/// by it. `weights` are there if their gradient is.
constexpr flash_attention_args forward_of(const attention_backward_args& args) noexcept {
  return {.q = args.q,
          .k = args.k,
          .v = args.v,
          .bias_pre = args.bias_pre,
          .bias_post = args.bias_post,
          .mask = args.mask,
          .q_segment_ids = args.q_segment_ids,
          .kv_segment_ids = args.kv_segment_ids,
          .sinks = args.sinks,
          .cu_seqlens_q = args.cu_seqlens_q,
          .cu_seqlens_k = args.cu_seqlens_k,
          .seqlens_q = args.seqlens_q,
          .seqlens_k = args.seqlens_k,
          .out = args.out,
          .lse = args.lse,
          .row_max = args.row_max,
          .weights = args.d_weights};
}

}  // namespace tessera
