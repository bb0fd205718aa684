// The delta rule: linear attention whose state forgets, and takes back what it held for a key.
//
//   tessera::delta_rule_args args{.q = tessera::view(q, {B, T, H, K}),
//                                 .k = tessera::view(k, {B, T, H, K}),
//                                 .v = tessera::view(v, {B, T, HV, V}),
//                                 .g = tessera::view(g, {B, T, HV}),
//                                 .beta = tessera::view(beta, {B, T, HV}),
//                                 .out = tessera::view(out, {B, T, HV, V})};
//   if (auto done = tessera::gated_delta_rule(args, {.use_qk_l2norm = true}); !done)
//     report(done.message());
//
// For each value head a state S [K,V] goes through the tokens of a sequence:
//
//   S = exp(g) S;  S += k (beta (v - S^T k))^T;  out = S^T (scale q)
//
// `gated_delta_rule` has one log decay g per head, `kernel_delta_attention` (KDA) one per head or,
// as gk, one for each channel of the keys. Gates may be raw, beta too, q and k of any length: see
// the options. With `cu_seqlens` sequence n is tokens [cu[n], cu[n+1]) of one entry and has a state
// of its own; tokens behind the last sequence give 0 and touch no state. With `seg_ids` the state
// starts from 0 where the id changes; the initial state belongs to the first run of tokens that are
// not padding, and the final state is the one behind the last of them. A sequence without tokens
// leaves its state as it is.
//
// Arithmetic and states are float; results are rounded once. The bits of a result depend neither on
// the number of threads nor on the rest of the batch.
//
// Every function checks its arguments completely before it writes anything. Functions may be called
// from any number of threads at once. Nothing is thrown but std::bad_alloc; `throw_if_failed`
// (spec/status.hpp) makes an exception of a refusal.
#pragma once

#include <tessera/api/context.hpp>
#include <tessera/api/plan.hpp>
#include <tessera/families/delta_rule/args.hpp>
#include <tessera/families/delta_rule/options.hpp>
#include <tessera/families/delta_rule/problem.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// out and, if it is given, final_state; a decay per head.
status gated_delta_rule(const delta_rule_args& args, const delta_rule_options& options = {},
                        const context& context = {});

/// The same with a decay per head or per channel of the keys.
status kernel_delta_attention(const delta_rule_args& args, const delta_rule_options& options = {},
                              const context& context = {});

/// The gradients of gated_delta_rule from d_out and, if it is given, d_final_state: d_q, d_k, d_v,
/// d_beta and, where they are given, those of the other operands. Options are those of the call.
status gated_delta_rule_backward(const delta_rule_args& args,
                                 const delta_rule_options& options = {},
                                 const context& context = {});

/// The same of kernel_delta_attention.
status kernel_delta_attention_backward(const delta_rule_args& args,
                                       const delta_rule_options& options = {},
                                       const context& context = {});

/// Choose once, run many times; see api/plan.hpp.
using delta_rule_plan = basic_plan<delta_rule_problem>;

}  // namespace tessera
