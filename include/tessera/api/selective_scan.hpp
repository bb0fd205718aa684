// Elementwise recurrences: state-space models whose steps depend on the token, and weighted sums
// whose weights decay.
//
//   tessera::state_space_args args{.x = tessera::view(x, {B, T, D}),
//                                  .dt = tessera::view(dt, {B, T, D}),
//                                  .A = tessera::view(a, {D, N}),
//                                  .B = tessera::view(b, {B, T, N}),
//                                  .C = tessera::view(c, {B, T, N}),
//                                  .out = tessera::view(out, {B, T, D})};
//   if (auto done = tessera::state_space_v1(args); !done) report(done.message());
//
// With steps d = dt + dt_bias, or its softplus, for each channel and state n
//
//   h[n] = exp(A[n] d) h[n] + d B[n] x        out = (sum_n C[n] h[n] + D x) silu(z)
//
// (`state_space_v1`, Mamba). In `state_space_v2` (Mamba-2) the channels of a head share A, D and
// their steps, which may be bounded, and the output may be normalised (state_space_options).
//
// `rwkv4` is, for each channel, the mean of v with weights that the key makes, decaying by
// exp(-exp(w)) a token; the current token has the bonus u:
//
//   out = (sum_s e^(k[s] - (t-1-s) exp(w)) v[s] + e^(u + k) v) / (the same without v)
//
// over the tokens s before t. Sums are kept relative to their largest exponent: no key overflows.
//
// States start from initial_state, else 0; final_state is what they are after the last token. With
// `cu_seqlens` sequence n is tokens [cu[n], cu[n+1]) of one entry and has states of its own; a
// sequence without tokens keeps its state. With `state_indices` beside it the states of sequence n
// are those of a slot of a pool. Tokens behind the last sequence have output 0.
//
// Arithmetic and states are f32; results are rounded once and have the same bits for any number of
// threads. A decay's exponent A d counts as 88 where it is more.
//
// Every function checks its arguments completely before it writes anything. Functions may be called
// from any number of threads at once. Nothing is thrown but std::bad_alloc; `throw_if_failed`
// (spec/status.hpp) makes an exception of a refusal.
#pragma once

#include <tessera/api/context.hpp>
#include <tessera/api/plan.hpp>
#include <tessera/families/selective_scan/problem.hpp>
#include <tessera/families/selective_scan/rwkv4_args.hpp>
#include <tessera/families/selective_scan/rwkv4_options.hpp>
#include <tessera/families/selective_scan/state_space_args.hpp>
#include <tessera/families/selective_scan/state_space_options.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// x, dt, out [B,T,D]; A [D,N]; B, C [B,T,N] or [B,T,G,N]. D, z, dt_bias, initial_state and
/// final_state may be absent.
status state_space_v1(const state_space_args& args, const state_space_options& options = {},
                      const context& context = {});

/// x, out [B,T,H,P]; dt [B,T,H]; A [H]; B, C [B,T,G,N]. D, z, dt_bias, norm_weight, initial_state
/// and final_state may be absent.
status state_space_v2(const state_space_args& args, const state_space_options& options = {},
                      const context& context = {});

/// Gradients of state_space_v1: d_x, d_dt, d_A, d_B, d_C from what the call took, d_out and, if
/// there is one, d_final_state. d_D, d_z, d_dt_bias and d_initial_state where those operands are
/// given.
status state_space_v1_backward(const state_space_args& args,
                               const state_space_options& options = {},
                               const context& context = {});

/// Gradients of state_space_v2, likewise; d_norm_weight besides.
status state_space_v2_backward(const state_space_args& args,
                               const state_space_options& options = {},
                               const context& context = {});

/// k, v, out [B,T,C]; w, u [C]. initial_state and final_state [B,3,C] may be absent.
status rwkv4(const rwkv4_args& args, const rwkv4_options& options = {},
             const context& context = {});

/// Gradients of rwkv4: d_k, d_v, d_w, d_u from what the call took, d_out and, if there is one,
/// d_final_state; d_initial_state where initial_state is given. Where two exponents are the same,
/// each has half of what belongs to their maximum.
status rwkv4_backward(const rwkv4_args& args, const rwkv4_options& options = {},
                      const context& context = {});

/// Choose once, run many times; see api/plan.hpp. Runs have the planned shapes.
using state_space_plan = basic_plan<state_space_problem>;
using rwkv4_plan = basic_plan<rwkv4_problem>;

}  // namespace tessera
