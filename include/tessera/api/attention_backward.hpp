// Gradients of the attention operations.
//
//   tessera::attention_backward_args args{.q = ..., .k = ..., .v = ...,
//                                         .out = ..., .lse = ..., .d_out = ...,
//                                         .d_q = ..., .d_k = ..., .d_v = ...};
//   auto done = tessera::flash_attention_backward(args, {.causal = true});
//
// q, k, v, masks, biases and options are those of the forward call, `out` and `lse` what it wrote;
// with `dropout_probability` its weights are dropped again, from the same seed. The weights
// P = exp(s - lse) are computed again, a tile at a time: memory grows with the lengths, not with
// their product.
//
//   D[i]    = <d_out[i], out[i]> - d_lse[i] (+ sum over j of Z P d_weights)
//   d_s     = P * (Z <d_out[i], v[j]> (+ Z d_weights) - D[i])         the gradient of a final logit
//   d_v[j]  = sum over i of Z P d_out[i]
//   d_bias_post = d_s,   d_bias_pre = d_s * (1 - tanh^2)              summed where they broadcast
//   d_q[i]  = softmax_scale * sum over j of d_bias_pre[i,j] k[j],   d_k[j] likewise
//   d_sinks = - sum over i of exp(sink - lse[i]) D[i]
//
// With `normalize` false the row's maximum counts as a constant. Rows that see nothing, rows behind
// the lengths and keys that nobody sees have gradient 0; NaN and infinity there reach no gradient.
//
// Every function checks its arguments completely before it writes anything. Functions may be called
// from any number of threads at once. Nothing is thrown but std::bad_alloc; `throw_if_failed`
// (spec/status.hpp) makes an exception of a refusal.
#pragma once

#include <tessera/api/context.hpp>
#include <tessera/api/plan.hpp>
#include <tessera/families/attention/options.hpp>
#include <tessera/families/attention_backward/args.hpp>
#include <tessera/families/attention_backward/problem.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Gradients of `flash_attention`.
status flash_attention_backward(const attention_backward_args& args,
                                const flash_attention_options& options = {},
                                const context& context = {});

/// Gradients of `attention`, whose weights may have a gradient `d_weights` too.
status attention_backward(const attention_backward_args& args,
                          const flash_attention_options& options = {}, const context& context = {});

/// Gradients of `scaled_dot_product_attention`.
status scaled_dot_product_attention_backward(const attention_backward_args& args,
                                             const flash_attention_options& options = {},
                                             const context& context = {});

/// Choose once, run many times; see api/plan.hpp.
using attention_backward_plan = basic_plan<attention_backward_problem>;

}  // namespace tessera
