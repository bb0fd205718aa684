// Attention over keys and values in pages of a pool, as serving engines keep them: the pages of a
// sequence lie anywhere, a block table lists them. One new token of each sequence (page_attention,
// and decode_attention, which is the same), or a chunk of one sequence (prefill_page_attention).
//
//   tessera::page_attention_args args{
//       .q = tessera::view(q, {N, 32, 128}), .k_pages = tessera::view(k, {pages, 8, 16, 128}),
//       .v_pages = tessera::view(v, {pages, 8, 16, 128}),
//       .block_table = tessera::view(table, {N, most_pages}),
//       .seqlens_k = tessera::view(lengths, {N}), .out = tessera::view(out, {N, 32, 128})};
//   if (auto done = tessera::page_attention(args); !done) report(done.message());
//
// For each sequence n, query head h (reading key/value head h / (Hq / Hkv)) and key
// j < seqlens_k[n], which lies in slot j % T of page block_table[n, j / T]:
//
//   s[j]      = softmax_scale * k_scale * k_scales[h'] * <q[n, h], k_token_scales[j, h'] k[j]>
//   s[j]      = logits_soft_cap ? cap * tanh(s[j] / cap) : s[j]
//   out[n, h] = v_scale * v_scales[h'] * sum_j softmax(s)[j] * v_token_scales[j, h'] v[j]
//   lse[n, h] = log sum exp(s)                              over the last window_left + 1 keys
//
// where h' is that head of keys; scales that are not given are 1. Pools of 8 bits hold numbers of
// f8_e4m3, f8_e5m2 or i8, as kv_cache_append writes them with the same scales; a token's are those
// of its slot, and rows may round their products with keys and values to the type of q.
// The token of q is the last key. A sequence without keys gives out 0 and lse -inf. Of a chunk of C
// tokens, row i stands at key seqlens_k - C + i and sees that one and those before; rows before key
// 0 see nothing. Where calls run, what is checked and how errors are told: api/flash_attention.hpp.
// On a GPU lengths and page numbers may change between runs of a plan, and of a captured graph;
// those outside the table and the pool are cut to what is there.
#pragma once

#include <tessera/api/context.hpp>
#include <tessera/api/plan.hpp>
#include <tessera/families/attention/page_args.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Shapes: see page_attention_args. q and out share one dtype (f32, f16 or bf16), pools have it too
/// or hold 8 bits; head dims are 1 to 256, pages hold any number of tokens. Zero sequences and zero
/// pages are legal.
status page_attention(const page_attention_args& args, const page_attention_options& options = {},
                      const context& context = {});

/// The same under the name that it has where requests list the slots of their tokens: pools are
/// (PT)HD, with `page_size` 1 or more.
status decode_attention(const page_attention_args& args, const page_attention_options& options = {},
                        const context& context = {});

/// q [C,Hq,D]: the last C tokens of one sequence, whose keys and values lie in the pages already.
/// block_table [1,M], seqlens_k [1], lse [Hq,C].
status prefill_page_attention(const page_attention_args& args,
                              const page_attention_options& options = {},
                              const context& context = {});

/// Pages, their numbers and lengths are free; their counts are planned.
using page_attention_plan = basic_plan<page_problem>;

}  // namespace tessera
