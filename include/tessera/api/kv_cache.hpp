// Caches of keys and values in pages: new tokens into them, pages onto pages.
//
//   tessera::kv_cache_args args{.k_new = tessera::view(k, {tokens, heads, dim}),
//                               .v_new = tessera::view(v, {tokens, heads, dim}),
//                               .k_pages = tessera::view(k_pool, {pages, page_size, heads, dim}),
//                               .v_pages = tessera::view(v_pool, {pages, page_size, heads, dim}),
//                               .block_table = tessera::view(table, {sequences, table_pages}),
//                               .seqlens_k = tessera::view(lengths, {sequences}),
//                               .cu_seqlens_q = tessera::view(starts, {sequences + 1})};
//   auto done = tessera::kv_cache_append(args, {.pool_layout = tessera::cache_layout::PTHD});
//
// Token t of sequence n, of q_len new ones, becomes key seqlens_k[n] - q_len + t: slot key % T of
// page block_table[n, key / T], for pages of T tokens. Tokens behind the last sequence are written
// nowhere, and every other slot keeps its bits.
//
// Stored is x / scale, the scale being k_scale or v_scale times that of the head (k_scales,
// v_scales), rounded to the pool's type: to the nearest, ties to even; f8_e4m3, f8_e5m2 and i8
// saturate. With scale 1 and the same type bits are copied.
//
// With k_token_scales or v_token_scales the row of a token and head has a scale of its own beside
// that one: what makes its largest finite element the largest number of the type (448, 57344, 127),
// and at least the smallest normal number. It is written to the row's slot. Pages of such tensors
// are copied like those of any pool, by a call with them as k_pages and v_pages [P,T,Hkv,1].
//
// In host memory, tables are refused that name pages there are not, sequences shorter than their
// new tokens, and pages that are written and in use twice. On a GPU nobody looks at them before the
// kernel, which writes no token that has no place.
//
// Every function checks its arguments completely before it writes anything. Functions may be called
// from any number of threads at once. Nothing is thrown but std::bad_alloc; `throw_if_failed`
// (spec/status.hpp) makes an exception of a refusal.
#pragma once

#include <tessera/api/context.hpp>
#include <tessera/api/plan.hpp>
#include <tessera/families/kv_cache/args.hpp>
#include <tessera/families/kv_cache/options.hpp>
#include <tessera/families/kv_cache/problem.hpp>
#include <tessera/spec/float8.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Writes new keys and values: k_new, v_new, a pool (k_pages and v_pages, or kv_pages), block_table
/// and seqlens_k; cu_seqlens_q, num_seqs and all scales may be absent.
status kv_cache_append(const kv_cache_args& args, const kv_cache_options& options = {},
                       const context& context = {});

/// Page target_pages[i] of the pool becomes a copy of page source_pages[i]. No page is a target
/// twice, or a target and a source.
status kv_cache_copy(const kv_cache_args& args, const kv_cache_options& options = {},
                     const context& context = {});

/// Choose once, run many times; see api/plan.hpp. Runs have the planned shapes.
using kv_cache_plan = basic_plan<kv_cache_problem>;

}  // namespace tessera
