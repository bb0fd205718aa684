// Attention of tensors of 8 bits (f8_e4m3) with a scale for each head; out has 16.
//
//   tessera::fp8_attention_args args{
//       .q = tessera::view(q, {B, Sq, 32, 128}), .k = tessera::view(k, {B, Sk, 8, 128}),
//       .v = tessera::view(v, {B, Sk, 8, 128}), .q_scales = tessera::view(q_scales, {8}),
//       .k_scales = tessera::view(k_scales, {8}), .v_scales = tessera::view(v_scales, {8}),
//       .out = tessera::view(out, {B, Sq, 32, 128})};
//   if (auto done = tessera::fp8_attention(args, {.causal = true}); !done) report(done.message());
//
// What flash_attention computes (api/flash_attention.hpp) of q q_scales[g], k k_scales[g] and
// v v_scales[g], where g is the head of k and v: an absent list is 1. Lists are read when the
// kernel runs: on a GPU their numbers may change between runs of a plan, and of a captured graph.
//
// Weights of the softmax are rounded to f8_e4m3 on GPUs, relative to the row's maximum times 2^-8;
// sums are f32. Rows for GPUs are of compute capability 9.0 with head dims 64, 128 and 256; a
// kernel before the others lays v across in the workspace, which has room for it.
#pragma once

#include <tessera/api/context.hpp>
#include <tessera/api/plan.hpp>
#include <tessera/families/attention/fp8_args.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Shapes: see fp8_attention_args. Head dims are 1 to 256. Zero batch entries, rows, keys and
/// sequences are legal.
status fp8_attention(const fp8_attention_args& args, const fp8_attention_options& options = {},
                     const context& context = {});

/// Lengths are free; their sizes are planned.
using fp8_attention_plan = basic_plan<fp8_problem>;

}  // namespace tessera
