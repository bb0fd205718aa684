// The launches of gradients by chunks: what chunks are before any state is known, two scans, the
// gradients of each chunk, and sums over heads and chunks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/delta_rule/config.hpp>
#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/families/recurrent_chunks.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_back_memory.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_back_scans.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_gradients.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_weights.hpp>
#include <tessera/kernels/recurrence/sm80/head_group.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::delta_rule::sm80 {

/// All kernels of a row of gradients by chunks.
template <class Kernel>
struct chunk_back_kernels {
  using element = element_t<Kernel::config.type>;
  static constexpr int keys = resolved(Kernel::config).key_dim;
  /// Of 64 columns.
  using scan_shape = recurrence::sm80::chunk_shape<keys, 1, 4>;
  using gradient_shape = recurrence::sm80::chunk_shape<keys, 1, keys / 16>;

  static constexpr int weights_bytes = static_cast<int>(sizeof(chunk_weights_memory<scan_shape>));
  template <bool Back>
  static constexpr int scan_bytes = static_cast<int>(sizeof(scan_memory<scan_shape, Back>));
  static constexpr int gradient_bytes = static_cast<int>(sizeof(gradient_memory<gradient_shape>));
  static_assert(scan_bytes<true> <= chunk_shared_bytes(Kernel::config));
  static_assert(gradient_bytes <= chunk_shared_bytes(Kernel::config));

  static auto entries() {
    return std::array{
        cuda::entry_of(&make_chunk_weights<element, scan_shape>, weights_bytes),
        cuda::entry_of(&scan_chunks<element, scan_shape, false>, scan_bytes<false>),
        cuda::entry_of(&scan_chunks<element, scan_shape, true>, scan_bytes<true>),
        cuda::entry_of(&make_chunk_gradients<element, gradient_shape>, gradient_bytes),
        cuda::entry_of(&recurrence::sm80::add_head_shares<delta_rule_output>),
        cuda::entry_of(&add_chunk_gates<element>)};
  }
};

/// Gradients of q and k of several value heads, and of A_log and dt_bias.
template <class Kernel>
cudaError_t add_up_chunks(const chunk_back_scratch& scratch, cudaStream_t stream) {
  const chunk_back_args& args = scratch.args;
  const delta_rule_kernel_args& call = args.call;
  const auto add_shares = [&](const delta_rule_output& from, const delta_rule_output& to) {
    if (call.value_heads == call.key_heads) return cudaSuccess;
    return recurrence::sm80::launch_head_shares<delta_rule_output>(
        {.shares = static_cast<const float*>(from.data),
         .tokens = call.tokens,
         .entries = recurrence::entries_of(call),
         .heads = call.value_heads,
         .group = call.value_heads / call.key_heads,
         .columns = call.key_dim},
        to, stream);
  };
  cudaError_t code = add_shares(scratch.d_q, call.d_q);
  if (code == cudaSuccess) code = add_shares(scratch.d_k, call.d_k);
  if (code != cudaSuccess || !call.gate.raw) return code;
  return prim::cuda::launch_kernel(&add_chunk_gates<typename chunk_back_kernels<Kernel>::element>,
                                   cuda::grid_of(call.value_heads), 256, 0, stream, false, args,
                                   scratch.places);
}

template <class Kernel>
cudaError_t launch_chunks_back(const delta_rule_kernel_args& call, std::byte* workspace,
                               cudaStream_t stream) {
  using kernels_of = chunk_back_kernels<Kernel>;
  using element = typename kernels_of::element;
  using scan_shape = typename kernels_of::scan_shape;
  using gradient_shape = typename kernels_of::gradient_shape;
  const chunk_back_scratch scratch(call, kernels_of::keys, workspace);
  const chunk_back_args& args = scratch.args;
  const std::int64_t states = sequences_with_rest(call) * call.value_heads;
  cudaError_t code = cudaSuccess;
  if (call.gate.raw && scratch.places > 0) {
    code = cudaMemsetAsync(args.gate_sums, 0,
                           static_cast<std::size_t>(scratch.places) * 2 * sizeof(double), stream);
  }
  if (code != cudaSuccess) return code;
  if (states <= 0) return add_up_chunks<Kernel>(scratch, stream);
  dim3 by_chunks = cuda::grid_of(states);
  by_chunks.y = chunks_side_by_side(call);
  const auto launch = [&](auto kernel, dim3 grid, int threads, int bytes, const auto&... more) {
    if (code != cudaSuccess) return;
    code = prim::cuda::launch_kernel(kernel, grid, threads, bytes, stream, false, args, more...);
  };
  launch(&make_chunk_weights<element, scan_shape>, by_chunks, scan_shape::threads,
         kernels_of::weights_bytes);
  const std::int64_t tiles = (call.value_dim + scan_shape::columns - 1) / scan_shape::columns;
  const dim3 by_columns = cuda::grid_of(states * tiles);
  launch(&scan_chunks<element, scan_shape, false>, by_columns, scan_shape::threads,
         kernels_of::template scan_bytes<false>, static_cast<int>(tiles));
  launch(&scan_chunks<element, scan_shape, true>, by_columns, scan_shape::threads,
         kernels_of::template scan_bytes<true>, static_cast<int>(tiles));
  launch(&make_chunk_gradients<element, gradient_shape>, by_chunks, gradient_shape::threads,
         kernels_of::gradient_bytes, scratch.d_q, scratch.d_k);
  return code == cudaSuccess ? add_up_chunks<Kernel>(scratch, stream) : code;
}

}  // namespace tessera::kernels::delta_rule::sm80
