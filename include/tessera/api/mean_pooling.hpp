// Mean pooling: tokens to their mean, over whole sequences or over chunks of them, and back.
//
//   tessera::mean_pooling_args args{.x = tessera::view(x, {B, T, D}),
//                                   .mask = tessera::view(mask, {B, T}),
//                                   .out = tessera::view(out, {B, D})};
//   if (auto done = tessera::mean_pooling(args); !done) report(done.message());
//
//   out = sum_t mask[t] x[t] / sum_t mask[t]        d_x[t] = mask[t] d_out / sum_t mask[t]
//
// where t runs over the tokens of a sequence (without a mask every token weighs 1). With
// `cu_seqlens` sequence n is tokens [cu[n], cu[n+1]) of one tensor. `mean_pooling_chunks` gives one
// mean for every `chunk_size` tokens; chunks restart in every sequence, and the last one is divided
// by its own length.
//
// Sums are float, combined so that rounding errors do not grow with the length; the result is
// rounded once. Sequences without tokens, and those whose weights sum to 0, have mean 0 and give no
// gradient. A token of weight 0 is not read: NaN and infinity there never reach a result; its
// gradient is 0. Tokens behind the last sequence take no part and have gradient 0. The mask is not
// differentiated.
//
// Every function checks its arguments completely before it writes anything. Functions may be called
// from any number of threads at once. Nothing is thrown but std::bad_alloc; `throw_if_failed`
// (spec/status.hpp) makes an exception of a refusal.
#pragma once

#include <tessera/api/context.hpp>
#include <tessera/api/plan.hpp>
#include <tessera/families/mean_pooling/args.hpp>
#include <tessera/families/mean_pooling/options.hpp>
#include <tessera/families/mean_pooling/problem.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// out = the mean of each sequence. x [B,T,D] or packed [total,D], out [B,D] or [N,D] in the dtype
/// of x (f32, f16 or bf16); mask (dense only) [B,T].
status mean_pooling(const mean_pooling_args& args, const mean_pooling_options& options = {},
                    const context& context = {});

/// out = the mean of each chunk. x [B,T,H,D] or packed [1,T,H,D]; out [B,chunks,H,D].
status mean_pooling_chunks(const mean_pooling_args& args, const mean_pooling_options& options = {},
                           const context& context = {});

/// d_x from d_out, shaped as x and out above. x may be given and is not read.
status mean_pooling_backward(const mean_pooling_args& args,
                             const mean_pooling_options& options = {}, const context& context = {});

/// The same for chunks.
status mean_pooling_chunks_backward(const mean_pooling_args& args,
                                    const mean_pooling_options& options = {},
                                    const context& context = {});

/// Choose once, run many times; see api/plan.hpp. Runs have the planned shapes; the number of means
/// of packed chunks follows from the offsets of each run.
using mean_pooling_plan = basic_plan<mean_pooling_problem>;

}  // namespace tessera
