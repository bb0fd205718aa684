// Attention of a batch of prompts and single tokens over keys and values in pages of one pool,
// whose channels are the keys and values of the heads in turn, as engines on TPUs keep them.
//
//   tessera::ragged_page_args args{
//       .q = tessera::view(q, {tokens, 32, 128}),
//       .kv_pages = tessera::view(kv, {pages, 16, 2 * 8, 128}),
//       .block_table = tessera::view(table, {N, most_pages}),
//       .seqlens_k = tessera::view(lengths, {N}),
//       .cu_seqlens_q = tessera::view(offsets, {N + 1}),
//       .num_seqs = tessera::view(count, {1}), .out = tessera::view(out, {tokens, 32, 128})};
//   if (auto done = tessera::ragged_page_attention_v2(args); !done) report(done.message());
//
// What is computed: api/unified_attention.hpp, without biases; ragged_page_attention_v3 also has
//
//   s[j] = softmax_scale * q_scale * k_scale * k_scales[h'] * <q[i, h] / q_scale, k[j]>
//
// with q / q_scale cut to the numbers of the pool's type and rounded to it. lse is that of s.
#pragma once

#include <tessera/api/context.hpp>
#include <tessera/api/plan.hpp>
#include <tessera/families/attention/ragged_page_args.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Shapes: see ragged_page_args. q and out share one dtype (f32, f16 or bf16), the pool has it too
/// or holds 8 bits; head dims are 1 to 256. The pool is PTCD.
status ragged_page_attention_v2(const ragged_page_args& args,
                                const ragged_page_options& options = {},
                                const context& context = {});

/// Writes k_new and v_new to the pool, PTCD or PTCLD, then attends; columns behind D of channels
/// that are written become 0. What scales divide, and what tables may say:
/// chunked_prefill_paged_decode.
status ragged_page_attention_v3(const ragged_page_args& args,
                                const ragged_page_options& options = {},
                                const context& context = {});

/// Pages, their numbers, offsets and lengths are free; their counts are planned.
using ragged_page_plan = basic_plan<ragged_page_problem>;

}  // namespace tessera
