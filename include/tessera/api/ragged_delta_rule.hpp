// The delta rule for serving: tokens of all sequences one behind the other, and a pool of states.
//
//   tessera::ragged_delta_rule_args args{.q = tessera::view(q, {T, H, K}),
//                                        .k = tessera::view(k, {T, H, K}),
//                                        .v = tessera::view(v, {T, HV, V}),
//                                        .g = tessera::view(g, {T, HV}),
//                                        .beta = tessera::view(beta, {T, HV}),
//                                        .state_pool = tessera::view(pool, {P, HV, K, V}),
//                                        .cu_seqlens = tessera::view(offsets, {N + 1}),
//                                        .state_indices = tessera::view(slots, {N}),
//                                        .out = tessera::view(out, {T, HV, V})};
//   if (auto done = tessera::ragged_gated_delta_rule(args, {.use_qk_l2norm = true}); !done)
//     report(done.message());
//
// Sequence n is tokens [cu_seqlens[n], cu_seqlens[n+1]), one when it decodes, any number when it is
// a prompt. It starts from the state in slot state_indices[n] of the pool, or from 0 where
// has_initial_state[n] is 0, goes through its tokens as gated_delta_rule does, and leaves its state
// in the slot. The pool may have 16 bits; arithmetic is float, and a state is rounded once, behind
// the last token. Slots that no sequence with tokens has keep their bits, and may hold anything. A
// sequence without tokens neither reads nor writes: padding of a batch may name any slot, such as
// one for nobody. Tokens behind the last sequence give 0.
//
// In host memory, slots outside of the pool and slots that two sequences with tokens have are
// refused. The bits of a result depend neither on the number of threads nor on the other sequences.
//
// The gradients need the pool that the call read. d_state_pool goes in as the gradient of the pool
// behind the call and comes out as that of the pool in front of it: slots that the call did not
// touch pass theirs on.
#pragma once

#include <tessera/api/context.hpp>
#include <tessera/api/plan.hpp>
#include <tessera/families/delta_rule/options.hpp>
#include <tessera/families/delta_rule/ragged_args.hpp>
#include <tessera/families/delta_rule/ragged_problem.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// out and state_pool; a decay per head.
status ragged_gated_delta_rule(const ragged_delta_rule_args& args,
                               const delta_rule_options& options = {}, const context& context = {});

/// The same of q, k and v that lie side by side, with raw gates.
status ragged_gated_delta_rule_v2(const ragged_delta_rule_v2_args& args,
                                  const ragged_delta_rule_v2_options& options = {},
                                  const context& context = {});

/// The gradients of ragged_gated_delta_rule: d_q, d_k, d_v, d_beta and, where they are given, those
/// of the other operands. Options are those of the call.
status ragged_gated_delta_rule_backward(const ragged_delta_rule_args& args,
                                        const delta_rule_options& options = {},
                                        const context& context = {});

/// The same of ragged_gated_delta_rule_v2: d_mixed_qkv, d_a, d_b and, where they are given, others.
status ragged_gated_delta_rule_v2_backward(const ragged_delta_rule_v2_args& args,
                                           const ragged_delta_rule_v2_options& options = {},
                                           const context& context = {});

/// Choose once, run many times; see api/plan.hpp.
using ragged_delta_rule_plan = basic_plan<ragged_delta_rule_problem>;
using ragged_delta_rule_v2_plan = basic_plan<ragged_delta_rule_v2_problem>;

}  // namespace tessera
