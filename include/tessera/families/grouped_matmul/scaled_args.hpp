// The tensors of one call of scaled_grouped_matmul or scaled_matmul, products of elements of 8
// bits, under the names that tools and files use.
//
// | tensor | shape of scaled_grouped_matmul | dtype |
// |---|---|---|
// | lhs | [M,K] | f8_e4m3, f8_e5m2, i8 |
// | rhs | [G,N,K] | that of lhs, or the other f8 |
// | group_sizes | [S], S >= group_offset + G | i32 |
// | lhs_scale | scales blocks: [M,ceil(K/128)]; rows: [M,1] | f32 |
// | rhs_scale | scales blocks: [G,ceil(N/128),ceil(K/128)]; rows: [G,N,1] | f32 |
// | rhs_bias | [G,N] | f32, f16, bf16 |
// | out_init, multiplier, residual | [M,N] | f32, f16, bf16 |
// | out | [M,N] | f32, f16, bf16; i8, f8_e4m3, f8_e5m2 |
// | out_code_scale | [M or 1, ceil(N/128) or 1], out of 8 bits | f32 |
//
// scaled_matmul has no group_sizes. Its tensors have an axis of the batch in front, or none: lhs is
// [M,K] or [B,M,K], rhs [N,K] or [B,N,K], rhs_scale [ceil(N/128),ceil(K/128)] or with B in front.
//
// The last axis of every tensor has stride 1; every other stride is free.
#pragma once

#include <cstdint>

#include <tessera/families/grouped_matmul/options.hpp>
#include <tessera/spec/problem_of.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed; lhs, rhs, both scales and out are
/// required, of groups also group_sizes. What a member is not said of here is that of
/// grouped_matmul_args.
struct scaled_matmul_args {
  tensor_view lhs{};
  tensor_view rhs{};  ///< a matrix for each local group, its rows columns of out
  tensor_view group_sizes{};
  tensor_view lhs_scale{};  ///< element k of row r is lhs[r,k] lhs_scale[r, k / 128 or 0]
  tensor_view rhs_scale{};  ///< likewise, of the block or of the row
  tensor_view rhs_bias{};
  tensor_view out_init{};
  tensor_view multiplier{};
  tensor_view residual{};
  tensor_view out{};             ///< may be out_init itself
  tensor_view out_code_scale{};  ///< not 0
};

/// Products of elements of 8 bits.
enum class scaled_matmul_op : std::uint8_t { scaled_grouped_matmul, scaled_matmul };

constexpr bool has_groups(scaled_matmul_op op) noexcept {
  return op == scaled_matmul_op::scaled_grouped_matmul;
}

/// A call of one of them without its memory.
using scaled_matmul_problem =
    basic_problem<scaled_matmul_op, scaled_matmul_args, scaled_matmul_options>;

/// See spec/problem_of.hpp.
scaled_matmul_problem problem_type(const scaled_matmul_args&);
inline bool rows_are_unaligned(const scaled_matmul_args& args) noexcept {
  return are_unaligned(args.lhs, args.rhs);
}

}  // namespace tessera
