// The tensors of blocksparse attention, under the names that tools and files use. Heads stand in
// front of tokens.
//
// | tensor | shape | dtype |
// |---|---|---|
// | q, k, v | [B,Hq,Sq,D], [B,Hkv,Sk,D], [B,Hkv,Sk,Dv] | f32, f16, bf16; k, v that of q |
// | q_segment_ids, kv_segment_ids | [B,Sq], [B,Sk] | i32; negative: padding, which sees nothing |
// | q_positions, kv_positions | [B,Sq], [B,Sk] | i32; both or neither |
// | mask | [B or 1, Hq or 1, Sq or 1, Sk or 1] | u8; 0: hidden |
// | block_mask | [B or 1, Hq or 1, ceil(Sq / block_q), ceil(Sk / block_k)] | u8; 0: hidden |
// | sinks | [Hq or 1, number of sinks] | f32 |
// | out, d_out | [B,Hq,Sq,Dv] | that of q |
// | lse, d_lse | [B,Hq,Sq] | f32 |
//
// `mask` is not looked at in blocks whose element of block_mask is 2, which are shown as a whole;
// in others that are not hidden it decides about each pair.
//
// Query head h reads key/value head h / (Hq/Hkv). Without kv_segment_ids, q_segment_ids serve for
// keys where Sq = Sk. D and Dv are at most 256. The last axis of q, k, v, out and their gradients
// has stride 1; every other stride is free.
#pragma once

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed; q, k, v and out are required.
struct blocksparse_attention_args {
  tensor_view q{};
  tensor_view k{};
  tensor_view v{};
  tensor_view q_segment_ids{};
  tensor_view kv_segment_ids{};
  tensor_view q_positions{};
  tensor_view kv_positions{};
  tensor_view mask{};
  tensor_view block_mask{};
  tensor_view sinks{};
  tensor_view out{};
  tensor_view lse{};  ///< optional: natural logarithm, sinks included
};

/// The same of a gradient: what the forward call took and wrote, and gradients of the shape and
/// type of what they belong to. q, k, v, out, lse, d_out, d_q, d_k and d_v are required.
struct blocksparse_attention_backward_args {
  tensor_view q{};
  tensor_view k{};
  tensor_view v{};
  tensor_view q_segment_ids{};
  tensor_view kv_segment_ids{};
  tensor_view q_positions{};
  tensor_view kv_positions{};
  tensor_view mask{};
  tensor_view block_mask{};
  tensor_view sinks{};
  tensor_view out{};  ///< what the forward call wrote
  tensor_view lse{};  ///< likewise
  tensor_view d_out{};
  tensor_view d_lse{};  ///< absent: zeros
  tensor_view d_q{};
  tensor_view d_k{};
  tensor_view d_v{};
  tensor_view
      d_sinks{};  ///< optional: [Hq or 1, number of sinks], summed over heads if it has one row
};

}  // namespace tessera
