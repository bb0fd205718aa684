// The tensors of one product with packed weights, under the names that tools and files use.
//
// | tensor | shape | dtype |
// |---|---|---|
// | x, d_x | [M,K] | f32, f16, bf16 |
// | w_q, scales, zeros, tensor_scale | as quantize makes them | see weight_args.hpp |
// | out, d_out | [M,N] | f32, f16, bf16, each its own |
// | d_scales, d_zeros | those of scales and zeros | likewise |
// | group_sizes | [S], S >= group_offset + E | i32 |
//
// Products of groups have E matrices of weights: w_q, scales and zeros have an axis of them in
// front, tensor_scale is [E]. Others have no group_sizes, and groups no d_scales and d_zeros.
//
// The last axis of each tensor has stride 1.
#pragma once

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed. `quantized_matmul` and
/// `quantized_grouped_matmul` write out, the gradients d_x and, where they are given, d_scales and
/// d_zeros.
struct quantized_matmul_args {
  tensor_view x{};  ///< the gradient reads its values for d_scales and d_zeros only
  tensor_view w_q{};
  tensor_view scales{};
  tensor_view zeros{};         ///< affine: needed; else absent
  tensor_view tensor_scale{};  ///< nvfp4: above 0 and finite, multiplies every scale; absent: 1
  tensor_view out{};

  tensor_view d_out{};
  tensor_view d_x{};
  tensor_view d_scales{};  ///< optional; affine and nf4
  tensor_view d_zeros{};   ///< optional; affine
  /// Rows of every group of the problem, in any memory: what reaches beyond the rows of x is cut
  /// off, and numbers below 0 count as 0.
  tensor_view group_sizes{};
};

}  // namespace tessera
