// Attention: out = softmax(scale * q k^T + bias, masked) v, with every option of
// flash_attention_options and every tensor of flash_attention_args.
//
//   tessera::flash_attention_args args{
//       .q = tessera::view(q, {B, Sq, 32, 128}), .k = tessera::view(k, {B, Sk, 8, 128}),
//       .v = tessera::view(v, {B, Sk, 8, 128}), .out = tessera::view(out, {B, Sq, 32, 128})};
//   if (auto done = tessera::flash_attention(args, {.causal = true}); !done)
//     report(done.message());
//
// For each batch entry b, query head h (reading key/value head h / (Hq / Hkv)) and row i:
//
//   s[j]   = softmax_scale * <q[i], k[j]> + bias_pre[i, j]
//   s[j]   = logits_soft_cap ? cap * tanh(s[j] / cap) : s[j]
//   s[j]   = s[j] + bias_post[i, j]          keys that row i does not see leave here
//   out[i] = sum_j softmax([s, sinks])[j] * v[j]
//   lse[i] = log sum exp([s, sinks])
//
// Statistics and sums are float; out is rounded once. A row that sees nothing gives out 0 and lse
// -inf. NaN and infinity in keys, values and biases that no row sees never reach a result.
//
// A call runs where its tensors lie: all in host memory, or all in that of one GPU (view(pointer,
// extents, strides, {device_kind::cuda, 0})). On a GPU it returns when its work is in
// context.stream; values of cu_seqlens and seqlens in device memory are not checked.
//
// Every function checks its arguments completely before it writes anything: a refusal leaves all
// outputs as they were, and says in one sentence which tensor or option is wrong. Functions may be
// called from any number of threads at once. Nothing is thrown but std::bad_alloc;
// `throw_if_failed` (spec/status.hpp) makes an exception of a refusal.
#pragma once

#include <tessera/api/context.hpp>
#include <tessera/api/flash_plan.hpp>
#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/options.hpp>
#include <tessera/families/attention/problem.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Attention in O(Sq + Sk) memory. Takes every option and tensor except `weights`.
///
/// Shapes, dense and packed: see flash_attention_args. q, k, v and out share one dtype (f32, f16 or
/// bf16); head dims are 1 to 256 and those of v and out may differ from those of q and k. Sizes of
/// zero are legal: no keys give out 0.
status flash_attention(const flash_attention_args& args,
                       const flash_attention_options& options = {}, const context& context = {});

/// The same, and `weights` (optional, [B,Hq,Sq,Sk], f32 or the dtype of q) receives the softmax
/// weights after dropout; with sinks a row of them sums to less than 1. Dense tensors only where
/// weights are asked for, `normalize` must be true then.
status attention(const flash_attention_args& args, const flash_attention_options& options = {},
                 const context& context = {});

/// The plain operation: no soft cap, sinks, dropout, weights or unnormalized output, and v has the
/// head dim of q. Padded batches give their lengths as seqlens_q and seqlens_k.
status scaled_dot_product_attention(const flash_attention_args& args,
                                    const flash_attention_options& options = {},
                                    const context& context = {});

}  // namespace tessera
