// The tensors of native sparse attention, under the names that tools and files use.
//
// | tensor | shape | dtype |
// |---|---|---|
// | q, out, d_out | [B,T,Hq,D], [B,T,Hq,Dv] | f32, f16, bf16; out and d_out that of q |
// | k, v | [B,T,Hkv,D], [B,T,Hkv,Dv] | that of q |
// | g_slc, g_cmp, g_swa | [B,T,Hq] | f32 or that of q |
// | block_indices | [B,T,Hkv,S] | i32 |
// | block_counts | [B,T,Hkv] | i32 |
// | selected_blocks | [B,T,Hkv,block_count]; of a gradient [B,T,Hkv,S] | i32 |
// | cu_seqlens | [N+1] | i32 |
//
// With cu_seqlens B is 1, and blocks are counted from the first token of each sequence. Query head
// h reads key/value head h / (Hq/Hkv). D and Dv are at most 256. The last axis of q, k, v, out and
// their gradients has stride 1; every other stride is free.
#pragma once

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed; q, k, v and out are required.
struct native_sparse_attention_args {
  tensor_view q{};
  tensor_view k{};
  tensor_view v{};
  tensor_view g_slc{};  ///< gate of the selected branch; absent: 1
  tensor_view g_cmp{};  ///< gate of the compressed branch; absent: there is none
  tensor_view g_swa{};  ///< gate of the window branch; absent: there is none
  /// The selection. A number that is no block's, such as -1, selects nothing; a block that is
  /// there twice counts twice. Absent: blocks are selected by their scores.
  tensor_view block_indices{};
  /// How many entries of block_indices count: the first ones, none below 0. Absent: all.
  tensor_view block_counts{};
  tensor_view cu_seqlens{};  ///< packed: sequence n is tokens [cu[n], cu[n+1])
  tensor_view out{};
  /// Without block_indices, optional: what was selected, in ascending order, -1 behind them.
  tensor_view selected_blocks{};
};

/// The same of a gradient. q, k, v, selected_blocks, d_out, d_q, d_k and d_v are required;
/// gradients have the shape and type of what they belong to.
struct native_sparse_attention_backward_args {
  tensor_view q{};
  tensor_view k{};
  tensor_view v{};
  tensor_view g_slc{};
  tensor_view g_cmp{};
  tensor_view g_swa{};
  tensor_view selected_blocks{};  ///< what the forward call wrote, or its block_indices
  tensor_view block_counts{};
  tensor_view cu_seqlens{};
  tensor_view d_out{};
  tensor_view d_q{};
  tensor_view d_k{};
  tensor_view d_v{};
  tensor_view d_g_slc{};  ///< optional where the gate is given, like the others
  tensor_view d_g_cmp{};
  tensor_view d_g_swa{};
};

}  // namespace tessera
