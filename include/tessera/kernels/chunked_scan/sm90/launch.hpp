// Launches of linear attention in chunks with wgmma (compute capability 9.0, compiled for sm_90a):
// the kernels of the delta rule on Hopper without their correction (delta_rule/sm90/).
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr, for sm_90a alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/chunked_scan/config.hpp>
#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/families/chunked_scan/rules.hpp>
#include <tessera/kernels/cuda_entry_points.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/delta_rule/sm90/launch.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::chunked_scan::sm90 {

using delta_rule::sm90::further_decays;

/// What the kernel receives: rows and states under its names, and what decays beside `decay`.
struct walk_args {
  delta_rule_kernel_args args{};
  further_decays further{};
};

inline delta_rule_input input_of(const chunked_scan_rows& rows) {
  return {rows.data, rows.type, rows.entry, rows.token, rows.head};
}

inline walk_args walk_of(const chunked_scan_kernel_args& call) {
  walk_args walk;
  delta_rule_kernel_args& args = walk.args;
  const chunked_scan_states& first = call.initial_state;
  const chunked_scan_states& last = call.final_state;
  args.q = input_of(call.q);
  args.k = input_of(call.k);
  args.v = input_of(call.v);
  args.out = {call.out.data, call.out.type, call.out.entry, call.out.token, call.out.head};
  args.decay_has_channels = call.gk.data != nullptr;
  args.decay = input_of(args.decay_has_channels ? call.gk : call.g);
  if (args.decay_has_channels) walk.further.of_heads = input_of(call.g);
  walk.further.constants = call.g_gamma;
  walk.further.sequence = call.gamma_sequence;
  walk.further.head = call.gamma_head;
  args.initial = {first.data, dtype::f32, first.sequence, first.head, first.key};
  args.last = {last.data, dtype::f32, last.sequence, last.head, last.key};
  args.reverse = call.reverse;
  args.scale = call.scale;
  args.cu_seqlens = call.cu_seqlens;
  args.slots = call.slots;
  args.slot_stride = call.slot_stride;
  args.slot_count = call.slot_count;
  args.sequences = call.sequences;
  args.tokens = call.tokens;
  args.key_heads = call.kv_heads;
  args.value_heads = call.heads;
  args.key_dim = call.keys;
  args.value_dim = call.values;
  return walk;
}

/// The launch of a row.
template <class Kernel>
struct launcher {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using args_type = chunked_scan_kernel_args;
  using kernels = delta_rule::sm90::walks<element_t<Kernel::config.type>,
                                          resolved(Kernel::config).key_dim, false>;
  static_assert(kernels::channel_bytes <= chunk_shared_bytes(Kernel::config) &&
                kernels::head_bytes <= chunk_shared_bytes(Kernel::config));

  static launcher of(const args_type& call, int /*multiprocessors*/, std::byte* /*workspace*/) {
    return {call};
  }

  static auto entries() { return kernels::entries(); }
  static std::size_t bytes() { return 0; }
  cudaError_t launch(cudaStream_t stream) const {
    const walk_args walk = walk_of(call);
    return kernels::launch(walk.args, walk.further, stream);
  }

  const args_type& call;
};

}  // namespace tessera::kernels::chunked_scan::sm90
