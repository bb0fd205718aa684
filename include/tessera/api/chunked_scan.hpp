// Linear attention with decay: a state S [K,V] per head that decays, takes in a token's key and
// value, and is read by its query.
//
//   tessera::recurrent_args args{.q = tessera::view(q, {B, T, H, K}),
//                                .k = tessera::view(k, {B, T, H, K}),
//                                .v = tessera::view(v, {B, T, H, V}),
//                                .gk = tessera::view(gk, {B, T, H, K}),
//                                .out = tessera::view(out, {B, T, H, V})};
//   if (auto done = tessera::gla(args); !done) report(done.message());
//
//   S_t = exp(g_t + gk_t + g_gamma) exp(gv_t)^T * S_{t-1} + k_t v_t^T      (* elementwise)
//   out_t = scale S_t^T q_t
//
// where S_0 is initial_state or zero. Decays that are not given are 0; those that are given are
// logarithms, at most 0, and -inf forgets. There is no normaliser. With `cu_seqlens` sequence n is
// tokens [cu[n], cu[n+1]) of one entry, with a state of its own; `reverse` runs inside each
// sequence. Tokens behind the last sequence are not read and give 0; a sequence without tokens
// leaves its state alone. k and v may have fewer heads, each for a group of heads of q.
//
// The backward operations take the inputs of the forward ones and d_out, and give d_q, d_k, d_v
// and, where asked, the gradients of decays and of initial_state; d_final_state adds to that of the
// last state. g_gamma is not differentiated. They keep a state every 64 tokens in scratch memory.
// Scratch memory is linear in T where gradients of g or gk are wanted of bf16 on GPUs: 1 GiB for
// 16384 tokens of 64 heads of 128 x 128.
//
// States and sums are float, whatever the operands' type; out is rounded once.
//
// Every function checks its arguments completely before it writes anything. Functions may be called
// from any number of threads at once. Nothing is thrown but std::bad_alloc; `throw_if_failed`
// (spec/status.hpp) makes an exception of a refusal.
#pragma once

#include <tessera/api/context.hpp>
#include <tessera/api/plan.hpp>
#include <tessera/families/chunked_scan/args.hpp>
#include <tessera/families/chunked_scan/options.hpp>
#include <tessera/families/chunked_scan/problem.hpp>
#include <tessera/families/chunked_scan/rwkv6_args.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// All decays: g of a token's head, gk of its key channels, gv of its value channels, g_gamma of a
/// head for all time.
status recurrent(const recurrent_args& args, const recurrent_options& options = {},
                 const context& context = {});

/// Gated linear attention: gk and g_gamma.
status gla(const recurrent_args& args, const recurrent_options& options = {},
           const context& context = {});

/// Lightning attention: g_gamma, which must be given (api/lightning_decays.hpp has those of
/// models).
status lightning_attn(const recurrent_args& args, const recurrent_options& options = {},
                      const context& context = {});

/// RWKV-6: r for q, w for gk, scale 1; a token is read through the bonus u instead of the state:
/// out_t = scale (S_{t-1} + (u k_t) v_t^T)^T r_t. With raw_w the log decay is -exp(w). ejKernel's
/// operation of that name has scale 1 / sqrt(K).
status rwkv6(const rwkv6_args& args, const rwkv6_options& options = {},
             const context& context = {});

/// Their gradients.
status recurrent_backward(const recurrent_args& args, const recurrent_options& options = {},
                          const context& context = {});
status gla_backward(const recurrent_args& args, const recurrent_options& options = {},
                    const context& context = {});
status lightning_attn_backward(const recurrent_args& args, const recurrent_options& options = {},
                               const context& context = {});
status rwkv6_backward(const rwkv6_args& args, const rwkv6_options& options = {},
                      const context& context = {});

/// Choose once, run many times; see api/plan.hpp. Runs have the planned shapes.
using recurrent_plan = basic_plan<recurrent_problem>;
using rwkv6_plan = basic_plan<rwkv6_problem>;

}  // namespace tessera
