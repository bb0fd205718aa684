// The tensors of one attention call, under the names that tools and files use.
//
// | tensor | shape (dense; packed) | dtype |
// |---|---|---|
// | q | [B,Sq,Hq,D]; [Tq,Hq,D] | f32, f16, bf16 |
// | k | [B,Sk,Hkv,D]; [Tk,Hkv,D] | that of q |
// | v | [B,Sk,Hkv,Dv]; [Tk,Hkv,Dv] | that of q |
// | out | [B,Sq,Hq,Dv]; [Tq,Hq,Dv] | that of q |
// | lse, row_max | [B,Hq,Sq]; [Hq,Tq] | f32, natural logarithm |
// | bias_pre, bias_post | [B or 1, Hq or 1, Sq or 1, Sk or 1] | f32, f16, bf16 |
// | mask | as bias; nonzero = visible | u8 |
// | q_segment_ids | [B,Sq]; negative = padding | i32 |
// | kv_segment_ids | [B,Sk]; negative = padding | i32 |
// | sinks | [Hq or 1, number of sinks] | f32 |
// | cu_seqlens_q, cu_seqlens_k | [N+1] (packed only) | i32 |
// | seqlens_q, seqlens_k | [B] (dense only) | i32 |
// | weights | [B,Hq,Sq,Sk] | f32 or that of q |
// | dropout_mask | [B,Hq,Sq,Sk], 1 = kept | u8 |
//
// The last axis of q, k, v, out and weights has stride 1; every other stride is free. Axes of
// extent 1 broadcast, and so does stride 0.
#pragma once

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed; q, k, v and out are required.
struct flash_attention_args {
  tensor_view q{};
  tensor_view k{};
  tensor_view v{};
  tensor_view bias_pre{};   ///< added before the soft cap; -inf masks
  tensor_view bias_post{};  ///< added after the soft cap; -inf masks
  tensor_view mask{};
  tensor_view q_segment_ids{};   ///< rows see keys with the same id
  tensor_view kv_segment_ids{};  ///< absent: q_segment_ids serve for keys (Sq = Sk)
  tensor_view sinks{};           ///< logits that enter the denominator only
  tensor_view cu_seqlens_q{};    ///< packed: sequence n is rows [cu[n], cu[n+1])
  tensor_view cu_seqlens_k{};
  tensor_view seqlens_q{};  ///< dense: used length of each batch entry
  tensor_view seqlens_k{};

  tensor_view out{};
  tensor_view lse{};           ///< optional output: log sum exp of the row, sinks included
  tensor_view row_max{};       ///< optional output, `normalize` false only
  tensor_view weights{};       ///< optional output: softmax weights after dropout (`attention`)
  tensor_view dropout_mask{};  ///< optional output, dropout only
};

}  // namespace tessera
