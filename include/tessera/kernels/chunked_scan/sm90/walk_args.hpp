// Scans of linear attention as what the kernels of the delta rule on Hopper receive.
#pragma once

#include <cmath>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_scans.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_memory.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::chunked_scan::sm90 {

using delta_rule::sm90::back_scan;
using delta_rule::sm90::further_decays;

/// What the kernel receives: rows and states under its names, and what decays beside `decay`.
struct walk_args {
  delta_rule_kernel_args args{};
  further_decays further{};
};

inline delta_rule_input input_of(const chunked_scan_rows& rows) {
  return {rows.data, rows.type, rows.entry, rows.token, rows.head};
}

inline walk_args walk_of(const chunked_scan_kernel_args& call, const sm80::chunk_scan& scan) {
  walk_args walk;
  delta_rule_kernel_args& args = walk.args;
  const sm80::chunk_state &first = scan.initial, &last = scan.final;
  args.q = input_of(scan.q);
  args.k = input_of(scan.k);
  args.v = input_of(scan.v);
  args.out = {scan.out.data, scan.out.type, scan.out.entry, scan.out.token, scan.out.head};
  args.decay_has_channels = call.gk.data != nullptr;
  args.decay = input_of(args.decay_has_channels ? call.gk : call.g);
  if (args.decay_has_channels) walk.further.of_heads = input_of(call.g);
  walk.further.constants = call.g_gamma;
  walk.further.sequence = call.gamma_sequence;
  walk.further.head = call.gamma_head;
  args.initial = {first.data, dtype::f32, first.sequence, first.head, first.channel};
  args.last = {last.data, dtype::f32, last.sequence, last.head, last.channel};
  args.reverse = call.reverse != scan.returns;
  args.scale = scan.answer_scale;
  args.cu_seqlens = call.cu_seqlens;
  args.slots = call.slots;
  args.slot_stride = call.slot_stride;
  args.slot_count = call.slot_count;
  args.sequences = call.sequences;
  args.tokens = call.tokens;
  args.key_heads = call.kv_heads;
  args.value_heads = call.heads;
  args.key_dim = scan.keys;
  args.value_dim = scan.values;
  return walk;
}

/// Scans of gradients; blockIdx.y is the scan.
struct back_launch {
  struct scan {
    walk_args walk{};
    back_scan back{};
    uint4* kept = nullptr;  ///< states in front of chunks; null: nowhere
  };
  chunked_scan_kernel_args call{};
  sm80::chunk_states states{};
  scan scans[3]{};
};

inline back_launch::scan scan_of(const chunked_scan_kernel_args& call,
                                 const sm80::chunk_scan& scan) {
  return {.walk = walk_of(call, scan),
          .back = {.returns = scan.returns,
                   .token_scale = std::exp2(scan.log2_token_scale),
                   .initial_scale = scan.initial_scale,
                   .final_scale = scan.final_scale,
                   .initial_column = scan.initial.column},
          .kept = scan.kept};
}

}  // namespace tessera::kernels::chunked_scan::sm90
