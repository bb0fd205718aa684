// Products of elements of 8 bits (f8_e4m3, f8_e5m2 or i8) with scales, as weights and activations
// of quantised models have them.
//
//   tessera::scaled_matmul_args args{.lhs = tessera::view(x, {rows, k}),
//                                    .rhs = tessera::view(experts, {groups, n, k}),
//                                    .group_sizes = tessera::view(sizes, {groups}),
//                                    .lhs_scale = tessera::view(x_scale, {rows, k / 128}),
//                                    .rhs_scale =
//                                        tessera::view(w_scale, {groups, n / 128, k / 128}),
//                                    .out = tessera::view(y, {rows, n})};
//   if (auto done = tessera::scaled_grouped_matmul(args); !done) report(done.message());
//
// What grouped_matmul and matmul compute (api/grouped_matmul.hpp) of lhs and rhs times their
// scales. Matrices of rhs are [N,K]: both operands lie along the summed axis. Scales are those of
// blocks, 128 elements of a row of lhs and 128 x 128 of rhs (the last block of an axis may be
// shorter), or with `scales` rows one for each row of lhs and of rhs.
//
// rhs may be of the other type of f8, as gradients of f8_e5m2 meet weights of f8_e4m3. out may have
// 8 bits, too: see api/grouped_matmul.hpp.
//
// Sums are float. Matrix units keep 14 bits of sums of f8: those of 128 elements are scaled and
// added in float. On GPUs sums of i8 are whole numbers, of up to 131,071 elements with scales of
// rows. Rows for GPUs are of compute capability 9.0. There are no gradients: elements of 8 bits
// have none. That of what they stand for is a product with d_out, by matmul or as another one of
// these.
#pragma once

#include <tessera/api/context.hpp>
#include <tessera/api/plan.hpp>
#include <tessera/families/grouped_matmul/scaled_args.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// out [M,N] from lhs [M,K], rhs [G,N,K], group_sizes and both scales; rhs_bias, out_init,
/// multiplier and residual may be absent. Shapes: see scaled_matmul_args. Zero sizes are legal.
status scaled_grouped_matmul(const scaled_matmul_args& args,
                             const scaled_matmul_options& options = {},
                             const context& context = {});

/// out [M,N] from lhs [M,K] and rhs [N,K], or all of them with an axis of the batch in front.
status scaled_matmul(const scaled_matmul_args& args, const scaled_matmul_options& options = {},
                     const context& context = {});

/// Runs have the planned shapes and sizes of groups of their own.
using scaled_matmul_plan = basic_plan<scaled_matmul_problem>;

}  // namespace tessera
