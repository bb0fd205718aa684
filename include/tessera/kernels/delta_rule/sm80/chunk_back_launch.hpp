// The launches of gradients by chunks: what chunks are before any state is known, two scans, the
// gradients of each chunk, and sums over heads and chunks.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include <tessera/families/delta_rule/config.hpp>
#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/families/recurrent_chunks.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_back_memory.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_back_scans.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_channel_gradients.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_channel_weights.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_gradients.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_weights.hpp>
#include <tessera/kernels/recurrence/sm80/head_group.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::delta_rule::sm80 {

/// The kernels of gradients by chunks, with a decay of each head or of each channel.
template <class Element, int Keys, bool Channels>
struct chunk_back_stages {
  /// Of 64 columns.
  using scan_shape = recurrence::sm80::chunk_shape<Keys, 1, 4>;
  using gradient_shape = recurrence::sm80::chunk_shape<Keys, 1, Keys / 16>;
  using weights_memory = std::conditional_t<Channels, channel_weights_memory<Element, scan_shape>,
                                            chunk_weights_memory<scan_shape>>;
  using gradients_memory = std::conditional_t<Channels, channel_gradient_memory<gradient_shape>,
                                              gradient_memory<gradient_shape>>;

  static constexpr int weights_bytes = static_cast<int>(sizeof(weights_memory));
  template <bool Back>
  static constexpr int scan_bytes =
      static_cast<int>(sizeof(scan_memory<scan_shape, Back, Channels>));
  static constexpr int gradient_bytes = static_cast<int>(sizeof(gradients_memory));
  static constexpr int gradient_threads = gradient_shape::threads * (Channels ? 2 : 1);
  static constexpr int gate_threads = Channels ? 1024 : 256;
  static constexpr int most_bytes = std::max({weights_bytes, scan_bytes<true>, gradient_bytes});

  static constexpr auto weights() {
    if constexpr (Channels) {
      return &make_channel_weights<Element, scan_shape>;
    } else {
      return &make_chunk_weights<Element, scan_shape>;
    }
  }
  template <bool Back>
  static constexpr auto scan() {
    return &scan_chunks<Element, scan_shape, Back, Channels>;
  }
  static constexpr auto gradients() {
    if constexpr (Channels) {
      return &make_channel_gradients<Element, gradient_shape>;
    } else {
      return &make_chunk_gradients<Element, gradient_shape>;
    }
  }
  static constexpr auto gates() {
    if constexpr (Channels) {
      return &add_channel_gates<Element, Keys>;
    } else {
      return &add_chunk_gates<Element>;
    }
  }
  static auto entries() {
    return std::array{cuda::entry_of(weights(), weights_bytes),
                      cuda::entry_of(scan<false>(), scan_bytes<false>),
                      cuda::entry_of(scan<true>(), scan_bytes<true>),
                      cuda::entry_of(gradients(), gradient_bytes), cuda::entry_of(gates())};
  }
};

/// All kernels of a row of gradients by chunks.
template <class Kernel>
struct chunk_back_kernels {
  using element = element_t<Kernel::config.type>;
  static constexpr int keys = resolved(Kernel::config).key_dim;
  template <bool Channels>
  using stages = chunk_back_stages<element, keys, Channels>;
  static_assert(stages<false>::most_bytes <= chunk_shared_bytes(Kernel::config));
  static_assert(stages<true>::most_bytes <= chunk_shared_bytes(Kernel::config));

  static auto entries() {
    const auto heads = stages<false>::entries(), channels = stages<true>::entries();
    std::array<prim::cuda::kernel_entry, 2 * heads.size() + 1> all{};
    std::copy(heads.begin(), heads.end(), all.begin());
    std::copy(channels.begin(), channels.end(), all.begin() + heads.size());
    all.back() = cuda::entry_of(&recurrence::sm80::add_head_shares<delta_rule_output>);
    return all;
  }
};

/// Gradients of q and k of several value heads, and of A_log and dt_bias.
template <class Stages>
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
  return prim::cuda::launch_kernel(Stages::gates(), cuda::grid_of(call.value_heads),
                                   Stages::gate_threads, 0, stream, false, args, scratch.places);
}

template <class Stages>
cudaError_t launch_stages(const chunk_back_scratch& scratch, cudaStream_t stream) {
  using scan_shape = typename Stages::scan_shape;
  const chunk_back_args& args = scratch.args;
  const delta_rule_kernel_args& call = args.call;
  const std::int64_t states = sequences_with_rest(call) * call.value_heads;
  cudaError_t code = cudaSuccess;
  if (scratch.gate_numbers > 0) {
    code = cudaMemsetAsync(args.gate_sums, 0,
                           static_cast<std::size_t>(scratch.gate_numbers) * sizeof(double), stream);
  }
  if (code != cudaSuccess) return code;
  if (states <= 0) return add_up_chunks<Stages>(scratch, stream);
  dim3 by_chunks = cuda::grid_of(states);
  by_chunks.y = chunks_side_by_side(call);
  const auto launch = [&](auto kernel, dim3 grid, int threads, int bytes, const auto&... more) {
    if (code != cudaSuccess) return;
    code = prim::cuda::launch_kernel(kernel, grid, threads, bytes, stream, false, args, more...);
  };
  launch(Stages::weights(), by_chunks, scan_shape::threads, Stages::weights_bytes);
  const std::int64_t tiles = (call.value_dim + scan_shape::columns - 1) / scan_shape::columns;
  const dim3 by_columns = cuda::grid_of(states * tiles);
  launch(Stages::template scan<false>(), by_columns, scan_shape::threads,
         Stages::template scan_bytes<false>, static_cast<int>(tiles));
  launch(Stages::template scan<true>(), by_columns, scan_shape::threads,
         Stages::template scan_bytes<true>, static_cast<int>(tiles));
  launch(Stages::gradients(), by_chunks, Stages::gradient_threads, Stages::gradient_bytes,
         scratch.d_q, scratch.d_k);
  return code == cudaSuccess ? add_up_chunks<Stages>(scratch, stream) : code;
}

template <class Kernel>
cudaError_t launch_chunks_back(const delta_rule_kernel_args& call, std::byte* workspace,
                               cudaStream_t stream) {
  using kernels_of = chunk_back_kernels<Kernel>;
  const chunk_back_scratch scratch(call, kernels_of::keys, workspace);
  return call.decay_has_channels
             ? launch_stages<typename kernels_of::template stages<true>>(scratch, stream)
             : launch_stages<typename kernels_of::template stages<false>>(scratch, stream);
}

}  // namespace tessera::kernels::delta_rule::sm80
