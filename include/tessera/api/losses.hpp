// Losses of language models, from logits to one number without probabilities in between.
//
//   tessera::cross_entropy_args args{.logits = tessera::view(logits, {B, T, V}),
//                                    .targets = tessera::view(targets, {B, T}),
//                                    .loss = tessera::view(&loss, {1})};
//   if (auto done = tessera::fused_cross_entropy(args); !done) report(done.message());
//
// With lse = log sum_v exp(x_v) over the logits x of a token, its cross entropy is
//
//   lse - x_y                                     for a target y
//   lse - sum_v q_v x_v - entropy(q)              for a smoothed one: q_y = 1 - a, else a / (V - 1)
//   sum_v p_v lse - sum_v p_v x_v                 for soft targets p
//
// and z_loss lse^2 more. `fused_linear_cross_entropy` is the same of logits that are
// hidden lm_head_weight + lm_head_bias, capped if wanted, which no memory holds.
//
// `fused_kl_divergence` measures a student's distribution p = softmax(x / T) against a teacher's,
// q: sum_v q_v (ln q_v - ln p_v), the reverse, or beta KL(q, m) + (1 - beta) KL(p, m) with the
// mixture m = beta q + (1 - beta) p; times T^2. A class without probability has no part in a sum,
// whatever its logarithms. The teacher is a constant.
//
// A token's weight is that of `weights` times that of `mask`, each 1 where
// it is absent; it is 0 where the target is `ignore_index` or no class. Tokens of weight 0 have
// loss and gradient 0 whatever their logits are, which nobody reads. The divisor of a mean counts
// as a constant, as do weights and entropies.
//
// A class whose logit is -inf has no part in the loss unless it is the target, or has some of a
// smoothed one: the loss is inf then. With one class nothing is smoothed.
//
// Arithmetic is f32 relative to the largest logit, sums are double; results are rounded once and
// have the same bits for any number of threads.
//
// Every function checks its arguments completely before it writes anything. Functions may be called
// from any number of threads at once. Nothing is thrown but std::bad_alloc; `throw_if_failed`
// (spec/status.hpp) makes an exception of a refusal.
#pragma once

#include <tessera/api/context.hpp>
#include <tessera/api/plan.hpp>
#include <tessera/families/losses/cross_entropy_args.hpp>
#include <tessera/families/losses/cross_entropy_options.hpp>
#include <tessera/families/losses/kl_divergence_args.hpp>
#include <tessera/families/losses/kl_divergence_options.hpp>
#include <tessera/families/losses/linear_cross_entropy_args.hpp>
#include <tessera/families/losses/linear_cross_entropy_options.hpp>
#include <tessera/families/losses/problem.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// logits [...,V], tokens in one axis to four; targets [...], or soft_targets like logits; loss
/// [1], or like targets. weights, mask, z_loss, weight_sum and accuracy may be absent.
status fused_cross_entropy(const cross_entropy_args& args,
                           const cross_entropy_options& options = {}, const context& context = {});

/// Gradients of fused_cross_entropy: d_logits from what the call took and d_loss; d_soft_targets
/// where those are given.
status fused_cross_entropy_backward(const cross_entropy_args& args,
                                    const cross_entropy_options& options = {},
                                    const context& context = {});

/// student_logits, teacher_logits [...,V]; loss [1], or [...]. weights, mask, weight_sum and
/// teacher_entropy may be absent.
status fused_kl_divergence(const kl_divergence_args& args,
                           const kl_divergence_options& options = {}, const context& context = {});

/// The gradient of fused_kl_divergence: d_student_logits from what the call took and d_loss.
status fused_kl_divergence_backward(const kl_divergence_args& args,
                                    const kl_divergence_options& options = {},
                                    const context& context = {});

/// hidden [...,H]; lm_head_weight [H,V]; targets [...]; loss [1], or like targets.
/// lm_head_bias, weights, mask, z_loss, weight_sum, accuracy and logit_sums may be absent. Plans on
/// a GPU want rows of lm_head_weight at multiples of 16 bytes in every run, unless planned
/// `unaligned` or of a length that is none.
status fused_linear_cross_entropy(const linear_cross_entropy_args& args,
                                  const linear_cross_entropy_options& options = {},
                                  const context& context = {});

/// Gradients of fused_linear_cross_entropy: d_hidden and d_lm_head_weight from what the call took
/// and d_loss; d_lm_head_bias where there is one. Given logit_sums, as the loss leaves them, they
/// need not compute all logits for these first.
status fused_linear_cross_entropy_backward(const linear_cross_entropy_args& args,
                                           const linear_cross_entropy_options& options = {},
                                           const context& context = {});

/// Choose once, run many times; see api/plan.hpp. Runs have the planned shapes.
using cross_entropy_plan = basic_plan<cross_entropy_problem>;
using kl_divergence_plan = basic_plan<kl_divergence_problem>;
using linear_cross_entropy_plan = basic_plan<linear_cross_entropy_problem>;

}  // namespace tessera
