// The tensors of one call of grouped_matmul or matmul, under the names that tools and files use.
//
// | tensor | shape of grouped_matmul | dtype |
// |---|---|---|
// | lhs, d_lhs | [M,K] | f32, f16, bf16; d_lhs that of lhs |
// | rhs, d_rhs | [G,K,N]; transpose_rhs: [G,N,K] | that of lhs, or i8; d_rhs that of rhs |
// | group_sizes | [S], S >= group_offset + G | i32 |
// | rhs_scale, d_rhs_scale | [G,P,N], P divides K | f32, f16, bf16 |
// | rhs_bias, d_rhs_bias | [G,N] | f32, f16, bf16 |
// | out_init, d_out_init | [M,N] | f32, f16, bf16 |
// | multiplier, residual | [M,N] | f32, f16, bf16 |
// | out | [M,N] | f32, f16, bf16; i8, f8_e4m3, f8_e5m2 |
// | out_code_scale | [M or 1, ceil(N/128) or 1], out of 8 bits | f32 |
// | d_out | [M,N] | f32, f16, bf16 |
//
// matmul has no group_sizes. Its tensors have an axis of the batch in front, or none: lhs is [M,K]
// or [B,M,K], rhs [K,N] or [B,K,N], rhs_bias [N] or [B,N].
//
// The last axis of every tensor has stride 1; every other stride is free.
#pragma once

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed. Forward operations need lhs, rhs and
/// out, backward ones lhs, rhs, d_out and d_lhs; those of groups also group_sizes.
struct grouped_matmul_args {
  tensor_view lhs{};  ///< the rows of the groups, one group behind the other
  tensor_view rhs{};  ///< a matrix for each local group
  /// Rows of every group of the problem, in any memory: what reaches beyond the rows of lhs is cut
  /// off, and numbers below 0 count as 0.
  tensor_view group_sizes{};
  /// Weight row k of group g is rhs[g,k,:] * rhs_scale[g, k / (K / P), :].
  tensor_view rhs_scale{};
  tensor_view rhs_bias{};  ///< added to the rows of its group
  tensor_view out_init{};  ///< added to all rows; those of no local group are it, or 0
  tensor_view out{};       ///< may be out_init itself
  tensor_view d_out{};     ///< gradient of out
  tensor_view d_lhs{};     ///< 0 in rows of no local group
  tensor_view d_rhs{};     ///< 0 for empty groups, as are d_rhs_scale and d_rhs_bias
  tensor_view d_rhs_scale{};
  tensor_view d_rhs_bias{};
  tensor_view d_out_init{};  ///< d_out, rounded to this type
  /// Of forward operations, rows of some local group: the result is out_scale times the activation
  /// times multiplier, plus residual.
  tensor_view multiplier{};
  tensor_view residual{};
  /// Of out of 8 bits: an element is the code next to what it would be divided by the scale of its
  /// row, or of its 128 columns; ties to even. What is beyond, and infinity, becomes the last code
  /// of its sign; NaN is NaN (0x7f), in i8 0. Scales are not 0: 0 / 0 is NaN. Absent: 1.
  tensor_view out_code_scale{};
};

}  // namespace tessera
