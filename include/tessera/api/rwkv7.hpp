// RWKV-7: a state whose transition is a diagonal plus a matrix of rank one.
//
//   S = diag(exp(w)) S + b (S^T a)^T + k v^T;  out = S^T (scale r)
//
// The names are those of the authors: `a` reads the state before it decays, `b` writes what was
// read. `rwkv7_mul` takes kk and a rate `a` in their place: it reads with -kk and writes with
// kk * a. With `cu_seqlens` sequence n is tokens [cu[n], cu[n+1]) of one entry and has a state of
// its own; tokens behind the last sequence give 0 and touch no state. With `reverse` the state goes
// through each sequence from its last token to its first. A sequence without tokens leaves its
// state as it is.
//
// ejKernel calls `b` what is `a` here, and `a` what is `b`; its default scale is 1 / sqrt(K).
//
// Arithmetic and states are float; results are rounded once. The bits of a result depend neither on
// the number of threads nor on the rest of the batch. Checks, threads and errors are those of
// api/delta_rule.hpp.
#pragma once

#include <tessera/api/context.hpp>
#include <tessera/api/plan.hpp>
#include <tessera/families/delta_rule/rwkv7_args.hpp>
#include <tessera/families/delta_rule/rwkv7_problem.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// out and, if it is given, final_state, from r, w, k, v, a and b.
status rwkv7(const rwkv7_args& args, const rwkv7_options& options = {},
             const context& context = {});

/// The same from r, w, k, v, kk and a.
status rwkv7_mul(const rwkv7_args& args, const rwkv7_options& options = {},
                 const context& context = {});

/// The gradients of rwkv7 from d_out and, if it is given, d_final_state: d_r, d_w, d_k, d_v, d_a,
/// d_b and, if it is given, d_initial_state. Options are those of the call.
status rwkv7_backward(const rwkv7_args& args, const rwkv7_options& options = {},
                      const context& context = {});

/// The same of rwkv7_mul, with d_kk in place of d_b.
status rwkv7_mul_backward(const rwkv7_args& args, const rwkv7_options& options = {},
                          const context& context = {});

/// Choose once, run many times; see api/plan.hpp.
using rwkv7_plan = basic_plan<rwkv7_problem>;

}  // namespace tessera
