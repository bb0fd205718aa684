// Latent attention: keys and values that are made of latents, one for each token.
//
//   tessera::flash_mla_args args{.ckv = tessera::view(latents, {B, S, R}),
//                                .w_kc = tessera::view(w_kc, {R, H, dn}),
//                                .w_vc = tessera::view(w_vc, {R, H, dv}),
//                                .k_pe = tessera::view(k_pe, {B, S, dr}),
//                                .q = tessera::view(q, {B, S, H, dn + dr}),
//                                .out = tessera::view(out, {B, S, H, dv})};
//   if (auto done = tessera::flash_mla(args, {.causal = true}); !done) report(done.message());
//
// The same under the name that papers and other libraries have for it:
// `multi_head_latent_attention`, in its expanded form; its absorbed form, over cached latents, is
// `multi_head_latent_attention_decode`, that is `flash_mla_decode`.
//
// Keys and values of a head are k = ckv w_kc and v = ckv w_vc. The logit of a query and a key is
//
//   softmax_scale * (q_nope k + q_rope k_pe)
//
// with the rope part of each head's query, behind its other columns, or `q_pe`, one for all heads,
// or none. Soft cap, bias_post, mask and window follow; then softmax, with sinks in its denominator
// only, dropout of weights, and the weighted sum of v. A row that sees nothing has out 0 and lse
// -inf.
//
// `flash_mla_decode` and `multi_latent_ragged_page_attention` attend to latents themselves, in
// pages of a cache: queries are q w_kc^T ("absorbed"), a latent with its rope part is the key of
// all heads, and its first columns are the value; out w_vc is for the caller. Rows are the last
// tokens of their sequences. Caches of the first may have 8 bits, scales of groups of columns, and
// rope parts in a tensor of their own. The second takes batches of any rows, and writes the latents
// of its tokens to their slots first, bit for bit and nothing else; then it is causal.
//
// `deepseek_attn` is flash_mla on keys that are selected for each token, the same ones for all
// heads: those in `indices`, or the index_topk with the largest scores
//
//   k_index_scale * sum over j of q_index_scale[j] * index_weights[j] *
//                                 relu(index_scale * q_index[j] k_index)
//
// of all keys or, if causal, of those up to the token's own, lower ones first where scores are
// equal. Scales are those of rows that were rounded to 8 bits, f8_e4m3 or f8_e5m2: of a token and
// index head, and of a key; they stand outside of relu, where DeepSeek-V3.2 has them, and those
// that are absent are 1. A product that is NaN counts as 0, a score that is NaN is the least.
// Windows, biases, masks, sinks and dropout are of the logits of what is selected.
//
// Arithmetic is f32, results are rounded once. The bits of a result depend neither on the number of
// threads nor on the rest of the batch. What nobody sees may hold anything; rows that see a key
// whose value has elements that are not finite are NaN.
//
// Every function checks its arguments completely before it writes anything. Functions may be called
// from any number of threads at once. Nothing is thrown but std::bad_alloc; `throw_if_failed`
// (spec/status.hpp) makes an exception of a refusal.
#pragma once

#include <tessera/api/context.hpp>
#include <tessera/api/plan.hpp>
#include <tessera/families/latent_attention/problem.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// out and, if it is given, lse.
status flash_mla(const flash_mla_args& args, const flash_mla_options& options = {},
                 const context& context = {});

/// Gradients of flash_mla: d_ckv, d_w_kc, d_w_vc, d_q and, where these are given, of k_pe and q_pe,
/// from what the call took, its out and lse, d_out and, if there is one, d_lse. If asked,
/// d_bias_post and d_sinks.
status flash_mla_backward(const flash_mla_args& args, const flash_mla_options& options = {},
                          const context& context = {});

/// out and, if it is given, lse, of rows [B,Sq] of sequences whose latents lie in pages.
status flash_mla_decode(const flash_mla_decode_args& args, const flash_mla_decode_options& options,
                        const context& context = {});

/// The same operations by their other name.
inline status multi_head_latent_attention(const flash_mla_args& args,
                                          const flash_mla_options& options = {},
                                          const context& where = {}) {
  return flash_mla(args, options, where);
}
inline status multi_head_latent_attention_backward(const flash_mla_args& args,
                                                   const flash_mla_options& options = {},
                                                   const context& where = {}) {
  return flash_mla_backward(args, options, where);
}
inline status multi_head_latent_attention_decode(const flash_mla_decode_args& args,
                                                 const flash_mla_decode_options& options,
                                                 const context& where = {}) {
  return flash_mla_decode(args, options, where);
}

/// flash_mla_decode of sequences with any numbers of rows, whose latents kv_cache gets first.
status multi_latent_ragged_page_attention(const latent_ragged_args& args,
                                          const latent_ragged_options& options,
                                          const context& context = {});

/// out and, if they are given, lse and selected_indices.
status deepseek_attn(const deepseek_attn_args& args, const deepseek_attn_options& options = {},
                     const context& context = {});

/// Gradients of deepseek_attn on the keys in indices, which are those of the call or its
/// selected_indices: as of flash_mla. The selection is constant, the indexer has no gradient.
status deepseek_attn_backward(const deepseek_attn_args& args,
                              const deepseek_attn_options& options = {},
                              const context& context = {});

/// Choose once, run many times; see api/plan.hpp. Runs have the planned shapes.
using flash_mla_plan = basic_plan<flash_mla_problem>;
using flash_mla_decode_plan = basic_plan<flash_mla_decode_problem>;
using latent_ragged_plan = basic_plan<latent_ragged_problem>;
using deepseek_attn_plan = basic_plan<deepseek_attn_problem>;

}  // namespace tessera
