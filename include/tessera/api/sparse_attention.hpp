// Attention in which a query looks at some of the keys.
//
//   tessera::blocksparse_attention_args args{.q = tessera::view(q, {B, Hq, Sq, D}),
//                                            .k = tessera::view(k, {B, Hkv, Sk, D}),
//                                            .v = tessera::view(v, {B, Hkv, Sk, Dv}),
//                                            .block_mask = tessera::view(shown, {B, 1, Nq, Nk}),
//                                            .out = tessera::view(out, {B, Hq, Sq, Dv})};
//   auto done = tessera::blocksparse_attention(args, {.causal = true, .block_q = 128});
//
// `blocksparse_attention`: the softmax of softmax_scale <q[i], k[j]>, behind the soft cap, over the
// keys that query i sees: keys of its segment, where neither position (causal, window, chunk) nor
// the mask nor the mask of blocks hides them. Positions are those that are given, else the numbers
// of rows and keys, aligned as causal_alignment says. Sinks are further logits without a value. A
// query that sees nothing has out 0, and lse -inf or that of the sinks. Tiles of keys that no query
// of a block sees are not read.
//
// `native_sparse_attention`: out = g_slc selected + g_cmp compressed + g_swa window, each a softmax
// of its own. A block is block_size tokens of a sequence; `compressed` is attention to the means of
// the keys and values of blocks that are complete, `selected` to the tokens, up to the query's own,
// of the blocks that were selected for the token and key/value head, `window` to the last tokens.
// Blocks are given, or selected: the token's own, and those whose means have the most weight, added
// over the query heads of the key/value head; of equal ones the first. Blocks that nobody selects
// are not read but for their means. No gradient flows through the selection.
//
// `block_selection` is the selection by itself: means of the keys of complete blocks, their weights
// for each query head in a softmax, added over the heads of a key/value head, and the blocks with
// the largest sums, which have the same bits if the same row serves both calls. On a GPU another
// row does where v has another head dim than k, or where rows of v, of which the selection knows
// nothing, do not start at multiples of 16 bytes: blocks of almost equal sums may change places
// then. A token's own block comes first, then those that options select
// whatever their weight (the first of a sequence, the last up to its own), lower numbers first,
// then the others by weight; of equal ones the first. What it writes is block_indices of
// `native_sparse_attention`.
//
// Gradients take what the forward call wrote and compute the weights again, tile by tile. Queries
// that see nothing, and keys that nobody sees, have gradient 0; NaN and infinity there reach no
// result.
//
// Arithmetic is f32; results are rounded once and have the same bits for any number of threads.
//
// Every function checks its arguments completely before it writes anything. Functions may be called
// from any number of threads at once. Nothing is thrown but std::bad_alloc; `throw_if_failed`
// (spec/status.hpp) makes an exception of a refusal.
#pragma once

#include <tessera/api/context.hpp>
#include <tessera/api/plan.hpp>
#include <tessera/families/sparse_attention/block_selection_args.hpp>
#include <tessera/families/sparse_attention/block_selection_options.hpp>
#include <tessera/families/sparse_attention/blocksparse_args.hpp>
#include <tessera/families/sparse_attention/blocksparse_options.hpp>
#include <tessera/families/sparse_attention/native_sparse_args.hpp>
#include <tessera/families/sparse_attention/native_sparse_options.hpp>
#include <tessera/families/sparse_attention/problem.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// q [B,Hq,Sq,D], k [B,Hkv,Sk,D], v [B,Hkv,Sk,Dv], out [B,Hq,Sq,Dv]. All else may be absent.
status blocksparse_attention(const blocksparse_attention_args& args,
                             const blocksparse_attention_options& options = {},
                             const context& context = {});

/// Gradients of blocksparse_attention: d_q, d_k, d_v from what the call took and wrote, d_out and,
/// if there is one, d_lse; d_sinks where it is wanted.
status blocksparse_attention_backward(const blocksparse_attention_backward_args& args,
                                      const blocksparse_attention_options& options = {},
                                      const context& context = {});

/// q [B,T,Hq,D], k [B,T,Hkv,D], v [B,T,Hkv,Dv], out [B,T,Hq,Dv]. All else may be absent.
status native_sparse_attention(const native_sparse_attention_args& args,
                               const native_sparse_attention_options& options = {},
                               const context& context = {});

/// Gradients of native_sparse_attention: d_q, d_k, d_v from what the call took, what it selected,
/// and d_out; those of gates where they are wanted.
status native_sparse_attention_backward(const native_sparse_attention_backward_args& args,
                                        const native_sparse_attention_options& options = {},
                                        const context& context = {});

/// The blocks that each token of q [B,T,Hq,D] attends to, by k [B,T,Hkv,D], in selected_blocks
/// [B,T,Hkv,block_count]: ascending, -1 behind the last.
status block_selection(const block_selection_args& args,
                       const block_selection_options& options = {}, const context& context = {});

/// Choose once, run many times; see api/plan.hpp. Runs have the planned shapes.
using blocksparse_plan = basic_plan<blocksparse_problem>;
using blocksparse_backward_plan = basic_plan<blocksparse_backward_problem>;
using native_sparse_plan = basic_plan<native_sparse_problem>;
using native_sparse_backward_plan = basic_plan<native_sparse_backward_problem>;
using block_selection_plan = basic_plan<block_selection_problem>;

}  // namespace tessera
