// The tensors of a selection of blocks, under the names that tools and files use.
//
// | tensor | shape | dtype |
// |---|---|---|
// | q | [B,T,Hq,D] | f32, f16, bf16 |
// | k | [B,T,Hkv,D] | that of q |
// | cu_seqlens | [N+1] | i32 |
// | selected_blocks | [B,T,Hkv,block_count] | i32 |
//
// With cu_seqlens B is 1, and blocks are counted from the first token of each sequence. Query head
// h reads key/value head h / (Hq/Hkv). D is at most 256. The last axis of q and k has stride 1;
// every other stride is free.
#pragma once

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. q, k and selected_blocks are required.
struct block_selection_args {
  tensor_view q{};
  tensor_view k{};
  tensor_view cu_seqlens{};  ///< packed: sequence n is tokens [cu[n], cu[n+1])
  /// In ascending order, -1 behind them: block_indices of native_sparse_attention.
  tensor_view selected_blocks{};
};

}  // namespace tessera
