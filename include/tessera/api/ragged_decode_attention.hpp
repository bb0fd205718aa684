// Attention of one new token of each entry of a dense batch over a range of the entry's keys, as
// batches that are padded on the left have them.
//
//   tessera::ragged_decode_args args{
//       .q = tessera::view(q, {B, 32, 128}), .k = tessera::view(k, {B, S, 8, 128}),
//       .v = tessera::view(v, {B, S, 8, 128}), .kv_start = tessera::view(start, {B}),
//       .kv_end = tessera::view(end, {B}), .out = tessera::view(out, {B, 32, 128})};
//   if (auto done = tessera::ragged_decode_attention(args); !done) report(done.message());
//
// For each entry b, query head h (reading key/value head h / (Hq / Hkv)) and key
// kv_start[b] <= j < min(kv_end[b], S):
//
//   s[j]      = softmax_scale * <q[b, h], k[b, j]>
//   s[j]      = logits_soft_cap ? cap * tanh(s[j] / cap) : s[j]
//   out[b, h] = sum_j p[j] * v[b, j],   p = exp(s) / (sum_j exp(s[j]) + sum_i exp(sinks[h, i]))
//   lse[b, h] = log of that denominator
//
// over the keys from kv_end[b] - 1 - window_left to kv_end[b] - 1 + window_right. An entry without
// keys gives out 0 and the lse of its sinks, -inf if there are none. Where calls run, what is
// checked and how errors are told: api/flash_attention.hpp. On a GPU ranges may change between runs
// of a plan, and of a captured graph; what lies outside the tensor is nobody's key.
#pragma once

#include <tessera/api/context.hpp>
#include <tessera/api/plan.hpp>
#include <tessera/families/attention/ragged_decode_args.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Shapes: see ragged_decode_args. q, k, v and out share one dtype (f32, f16 or bf16); head dims
/// are 1 to 256. Zero entries and zero keys are legal.
status ragged_decode_attention(const ragged_decode_args& args,
                               const ragged_decode_options& options = {},
                               const context& context = {});

/// Keys and ranges are free; their sizes are planned.
using ragged_decode_plan = basic_plan<ragged_decode_problem>;

}  // namespace tessera
