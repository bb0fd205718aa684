// Weights in few bits: codes that share a scale group by group.
//
//   tessera::quantized_options options{.mode = tessera::weight_mode::mxfp4};
//   tessera::weight_args args{.w = tessera::view(w, {N, K}),
//                             .w_q = tessera::view(codes, {N, K / 8}),
//                             .scales = tessera::view(scales, {N, K / 32})};
//   if (auto done = tessera::quantize(args, options); !done) report(done.message());
//
// Modes, bits and group sizes are those of `weight_mode`. A group lies along the last axis of what
// is stored: [N,K] with `axis` col, [K,N] with row. With k_major codes and numbers of groups are
// those of col the other way round, w_q [words,N] and scales [K / group size,N], while w is [N,K].
// Decoded weights are
//
//   affine  (code - zero) scale, with `affine_form` bias: code scale + zero
//   nf4, mx, nv  value(code) scale, nvfp4 also times tensor_scale
//
// and `quantized_matmul` is x [M,K] times the logical weight [N,K]:
//
//   out[m, n] = sum over k of x[m, k] W[n, k]
//
// with weights, sums and results in float, rounded once to the type of out; rows for GPUs of f16
// and bf16 round decoded weights to that type first, but for few rows of x. It has the same bits
// for any number of threads. Where the groups lie along K (`axis` col) a call reads packed rows
// one by one, which is the better choice for few rows of x. Weights that lie k-major are copied
// into rows by each call, in its workspace: read, written and read again. Who multiplies often is
// faster with col, whose results have the same bits.
//
// CPUs with AVX-512 VNNI multiply some codes as they are, with x in fixed point: affine ones of 4
// or 8 bits, mxfp4 and nvfp4, groups along K, where rows of x are few or
// `bits_promise::batch_invariant` is asked for. Each element of x is then off by up to 2^-22 of the
// largest finite one of its row (codes of 8 bits: 2^-21), and those below may count as 0. For x of
// a wider range name a row that multiplies floats: `context::row` "quantized.cpu_avx512.forward".
// With bf16 instructions of full rate, or tiles and many rows, codes of 4 bits meet x of bf16 as
// bf16: entries of nf4 are rounded to it, and subnormal elements of x count as 0.
//
// `quantized_grouped_matmul` multiplies each row of x with the weights of its group, as the experts
// of a mixture have them: E matrices in w_q, scales and zeros, and rows of x group by group as
// grouped_matmul has them (api/grouped_matmul.hpp), with `group_offset` and `x_rows`. Rows of no
// group are 0. Weights of groups without rows are not read.
//
// What quantize makes is the same bits everywhere: scales are those of the standards, exponents of
// mx are rounded down, elements of E2M1 and E4M3 to the nearest, ties to even, and saturate;
// affine codes are rounded likewise, nf4 takes the nearest entry. Infinity counts as the largest
// float, NaN as 0 or, in E4M3, as NaN. A group of zeros has scale 1; groups whose scale rounds to
// 0 (nv) become zeros. Sums with an infinite scale are infinite or NaN.
//
// Every function checks its arguments completely before it writes anything. Functions may be called
// from any number of threads at once. Nothing is thrown but
// std::bad_alloc; `throw_if_failed` (spec/status.hpp) makes an exception of a refusal.
#pragma once

#include <tessera/api/context.hpp>
#include <tessera/api/plan.hpp>
#include <tessera/families/quantized/options.hpp>
#include <tessera/families/quantized/problem.hpp>
#include <tessera/families/quantized/product_args.hpp>
#include <tessera/families/quantized/weight_args.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// w to w_q, scales and, of affine weights, zeros.
status quantize(const weight_args& args, const quantized_options& options = {},
                const context& context = {});

/// And back: w as it is stored, in the type it has.
status dequantize(const weight_args& args, const quantized_options& options = {},
                  const context& context = {});

/// quantize under the name that programs know it by whose weights go to quantized_matmul, which
/// takes them with the same options.
status prepack_quantized_weights(const weight_args& args, const quantized_options& options = {},
                                 const context& context = {});

/// x times packed weights to out.
status quantized_matmul(const quantized_matmul_args& args, const quantized_options& options = {},
                        const context& context = {});

/// The gradients of quantized_matmul from d_out: d_x and, where they are given, d_scales and
/// d_zeros, with the codes as they are.
status quantized_matmul_backward(const quantized_matmul_args& args,
                                 const quantized_options& options = {},
                                 const context& context = {});

/// Rows of x times the packed weights of their group, which group_sizes says, to out.
status quantized_grouped_matmul(const quantized_matmul_args& args,
                                const quantized_options& options = {}, const context& context = {});

/// The gradient of quantized_grouped_matmul from d_out: d_x, 0 in rows of no group.
status quantized_grouped_matmul_backward(const quantized_matmul_args& args,
                                         const quantized_options& options = {},
                                         const context& context = {});

/// Choose once, run many times; see api/plan.hpp. Runs have the planned shapes.
using weight_plan = basic_plan<weight_problem>;
using quantized_matmul_plan = basic_plan<quantized_matmul_problem>;

}  // namespace tessera
