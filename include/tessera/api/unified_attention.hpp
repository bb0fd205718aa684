// Attention of a batch as serving engines make it up at each step: sequences that read a part of
// their prompt beside sequences that generate, all over keys and values in pages of a pool.
//
//   tessera::unified_attention_args args{
//       .q = tessera::view(q, {tokens, 32, 128}), .k_pages = tessera::view(k, {pages, 16, 8, 128}),
//       .v_pages = tessera::view(v, {pages, 16, 8, 128}),
//       .block_table = tessera::view(table, {N, most_pages}),
//       .seqlens_k = tessera::view(lengths, {N}),
//       .cu_seqlens_q = tessera::view(offsets, {N + 1}),
//       .out = tessera::view(out, {tokens, 32, 128})};
//   if (auto done = tessera::unified_attention(args); !done) report(done.message());
//
// Sequence n has the rows i = 0 ... R - 1 of q from cu_seqlens_q[n] on, its last R tokens: row i
// stands at key c + i with c = seqlens_k[n] - R. For query head h (reading key/value head
// h / (Hq / Hkv)) and key j <= c + i, which lies in slot j % T of page block_table[n, j / T]:
//
//   s[j]      = softmax_scale * k_scale * k_scales[h'] * <q[i, h], k_token_scales[j, h'] k[j]>
//   s[j]      = logits_soft_cap ? cap * tanh(s[j] / cap) : s[j]
//   s[j]     += alibi_slopes[h] * (j - c) + (i < E and 0 <= j - c < E ? qq_bias[i, j - c] : 0)
//   out[i, h] = v_scale * v_scales[h'] * sum_j p[j] * v_token_scales[j, h'] v[j]
//          p  = exp(s) / (sum_j exp(s[j]) + sum_t exp(sinks[h, t]))
//   lse[h, i] = log of that denominator
//
// with scales as in api/page_attention.hpp, which says too what pools of 8 bits hold,
// over the last window_left + 1 keys up to the row's own; -inf in qq_bias hides a key. Rows before
// key 0, and those that see nothing, have out 0 and the lse of their sinks, -inf if there are none.
// Where calls run, what is checked and how errors are told: api/flash_attention.hpp. On a GPU
// offsets, lengths, page numbers and num_seqs may change between runs of a plan, and of a captured
// graph; those outside of tensors, table and pool are cut to what is there.
#pragma once

#include <tessera/api/context.hpp>
#include <tessera/api/plan.hpp>
#include <tessera/families/attention/unified_args.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Shapes: see unified_attention_args. q and out share one dtype (f32, f16 or bf16), pools have it
/// too or hold 8 bits; head dims are 1 to 256, pages hold any number of tokens. Zero sequences,
/// tokens and pages are legal.
status unified_attention(const unified_attention_args& args,
                         const unified_attention_options& options = {},
                         const context& context = {});

/// Writes k_new and v_new, the keys and values of the tokens of q, to the pools, at the positions
/// at which the tokens stand, then does the same. A pool of 8 bits holds the nearest numbers, and
/// new tokens of its own type as they are. k_scale, v_scale, k_scales and v_scales divide nothing:
/// that is the caller's to do. Where k_token_scales or v_token_scales are given, the row of a new
/// token and head is divided by the scale that kv_cache_append finds for it, which is written to
/// the row's slot; new tokens of 8 bits leave theirs as it is. Nothing else in the pools changes.
/// A sequence has at least as many keys as rows, and a page that is written is in use once: other
/// tables, if they lie in host memory, are refused before anything is written; in a GPU's memory
/// they are the caller's to keep, and never written outside of the pool.
status chunked_prefill_paged_decode(const unified_attention_args& args,
                                    const unified_attention_options& options = {},
                                    const context& context = {});

/// Pages, their numbers, offsets and lengths are free; their counts are planned.
using unified_attention_plan = basic_plan<unified_problem>;

}  // namespace tessera
