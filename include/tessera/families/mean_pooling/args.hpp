// The tensors of one mean pooling call, under the names that tools and files use.
//
// | tensor | mean_pooling: dense; packed | mean_pooling_chunks: dense; packed | dtype |
// |---|---|---|---|
// | x, d_x | [B,T,D]; [total,D] | [B,T,H,D]; [1,T,H,D] | f32, f16, bf16 |
// | out, d_out | [B,D]; [N,D] | [B,ceil(T/c),H,D]; [1,sum ceil(length/c),H,D] | that of x |
// | mask | [B,T]; none | none | f32, f16, bf16, u8 |
// | cu_seqlens | none; [N+1] | none; [N+1] | i32 |
//
// The last axis of x, out, d_out and d_x has stride 1; every other stride is free.
#pragma once

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed. The forward operations need x and out,
/// the backward ones d_out and d_x.
struct mean_pooling_args {
  tensor_view x{};           ///< backward: may be given, is not read
  tensor_view mask{};        ///< weight of each token; a token of weight 0 is not read
  tensor_view cu_seqlens{};  ///< packed: sequence n is tokens [cu[n], cu[n+1])
  tensor_view out{};
  tensor_view d_out{};  ///< gradient of out
  tensor_view d_x{};    ///< gradient of x
};

}  // namespace tessera
