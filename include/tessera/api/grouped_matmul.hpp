// Grouped matrix products: each row times the matrix of its group, as in a mixture of experts, and
// back.
//
//   tessera::grouped_matmul_args args{.lhs = tessera::view(x, {rows, k}),
//                                     .rhs = tessera::view(experts, {groups, k, n}),
//                                     .group_sizes = tessera::view(sizes, {groups}),
//                                     .out = tessera::view(y, {rows, n})};
//   if (auto done = tessera::grouped_matmul(args); !done) report(done.message());
//
//   out[r] = lhs[r] W_g + rhs_bias[g] + out_init[r]        W_g[k] = rhs[g,k] rhs_scale[g, k /
//   (K/P)]
//
//   out = residual + multiplier out_scale activation(out)      as far as these are given
//
// for the rows r of group g. Rows lie group by group: those of group g begin behind all rows of the
// groups before it. With `group_offset` rhs holds the matrices of some groups of a larger problem;
// lhs has the rows of all groups (rows of others are not read), or with `lhs_rows` local those of
// the groups in rhs. Rows of no group are 0 without bias, and out_init is added to them all the
// same; nothing else becomes of them. Sizes that reach beyond the rows of lhs are cut off, and
// sizes below 0 count as 0.
//
// The gradients of lhs, rhs, rhs_scale, rhs_bias and out_init are
//
//   d_lhs[r] = d_out[r] W_g^T     d_rhs[g] = (lhs_g^T d_out_g) scale      d_rhs_bias[g] = sum
//   d_out[r] d_rhs_scale[g,p] = sum over the k of block p of (lhs_g^T d_out_g)[k] rhs[g,k]
//   d_out_init = d_out
//
// Results of forward operations may have 8 bits (i8, f8_e4m3, f8_e5m2): each is then the code next
// to out / out_code_scale, of its row, of 128 columns of it, or of all. So the operand of a scaled
// product (api/scaled_matmul.hpp) comes straight from the product before it.
//
// `matmul` is the same with one matrix for all rows, or in a batch with rows and a matrix for each
// entry.
//
// Gradients are those of the plain product: what an activation, a scale, a multiplier or a residual
// makes of it is led back by the caller.
//
// Gradients of empty groups, and of rows of no group, are 0. rhs of i8 has none.
//
// Sums are float and rounded once. Nothing is read of matrices whose group has no rows. The bits of
// a row depend on neither its place, the other rows nor the number of threads.
//
// Every function checks its arguments completely before it writes anything. Functions may be called
// from any number of threads at once. Nothing is thrown but
// std::bad_alloc; `throw_if_failed` (spec/status.hpp) makes an exception of a refusal.
#pragma once

#include <tessera/api/context.hpp>
#include <tessera/api/plan.hpp>
#include <tessera/families/grouped_matmul/args.hpp>
#include <tessera/families/grouped_matmul/options.hpp>
#include <tessera/families/grouped_matmul/problem.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// out [M,N] from lhs [M,K], rhs [G,K,N] (transposed: [G,N,K]) and group_sizes; rhs_scale,
/// rhs_bias, out_init, multiplier and residual may be absent. out may be out_init itself.
status grouped_matmul(const grouped_matmul_args& args, const grouped_matmul_options& options = {},
                      const context& context = {});

/// d_lhs and, as far as they are given, the other gradients, from lhs, rhs, group_sizes, rhs_scale
/// and d_out.
status grouped_matmul_backward(const grouped_matmul_args& args,
                               const grouped_matmul_options& options = {},
                               const context& context = {});

/// out [M,N] from lhs [M,K] and rhs [K,N] (transposed: [N,K]), or all of them with an axis of the
/// batch in front; what may be absent is the same.
status matmul(const grouped_matmul_args& args, const grouped_matmul_options& options = {},
              const context& context = {});

/// d_lhs and, as far as they are given, the other gradients, likewise.
status matmul_backward(const grouped_matmul_args& args, const grouped_matmul_options& options = {},
                       const context& context = {});

/// Choose once, run many times; see api/plan.hpp. Runs have the planned shapes and sizes of groups
/// of their own.
using grouped_matmul_plan = basic_plan<grouped_matmul_problem>;

}  // namespace tessera
