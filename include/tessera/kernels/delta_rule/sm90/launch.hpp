// Launches of the delta rule in chunks with wgmma (compute capability 9.0, compiled for
// sm_90a).
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr, for sm_90a alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/delta_rule/config.hpp>
#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/families/delta_rule/rules.hpp>
#include <tessera/kernels/cuda_entry_points.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_forward.hpp>
#include <tessera/kernels/delta_rule/sm90/head_forward.hpp>
#include <tessera/kernels/recurrence/common/sequence.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::delta_rule::sm90 {

/// The kernels of a row, of blocks of 128 columns: for decays of channels, for heads or none, and
/// with a correction for low-rank updates.
template <class Element, int Keys, bool Corrects>
struct walks {
  using channels = walk_shape<Keys, Corrects>;
  using heads = head_shape<Keys, Corrects>;
  using updates = walk_shape<Keys, Corrects, Corrects>;
  static_assert(channels::columns == heads::columns);
  static constexpr auto through_channels = &chunk_through<Element, channels>;
  static constexpr auto through_heads = &heads_through<Element, heads>;
  static constexpr auto through_updates = &chunk_through<Element, updates>;
  static constexpr int channel_bytes = static_cast<int>(sizeof(walk_memory<channels>));
  static constexpr int head_bytes = static_cast<int>(sizeof(head_memory<heads>));
  static constexpr int update_bytes = static_cast<int>(sizeof(walk_memory<updates>));
  static constexpr int most_bytes = 227 * 1024;  ///< all that a block has
  static_assert(channel_bytes <= most_bytes && head_bytes <= most_bytes);
  static_assert(update_bytes <= most_bytes);

  static auto entries() {
    const auto of_channels = cuda::entry_of(through_channels, channel_bytes);
    const auto of_heads = cuda::entry_of(through_heads, head_bytes);
    if constexpr (Corrects) {
      return std::array{of_channels, of_heads, cuda::entry_of(through_updates, update_bytes)};
    } else {
      return std::array{of_channels, of_heads};
    }
  }
  static cudaError_t launch(const delta_rule_kernel_args& args, const further_decays& further,
                            cudaStream_t stream) {
    const std::int64_t tiles = (args.value_dim + heads::columns - 1) / heads::columns;
    const std::int64_t blocks = sequences_with_rest(args) * args.value_heads * tiles;
    if (blocks <= 0) return cudaSuccess;
    const auto start = [&](auto kernel, int threads, int shared_bytes) {
      return prim::cuda::launch_kernel(kernel, cuda::grid_of(blocks), threads, shared_bytes, stream,
                                       false, args, further, static_cast<int>(tiles));
    };
    if (Corrects && args.update != delta_rule_update::delta) {
      return start(through_updates, updates::threads, update_bytes);
    }
    return args.decay_has_channels ? start(through_channels, channels::threads, channel_bytes)
                                   : start(through_heads, heads::threads, head_bytes);
  }
};

/// The launch of a row.
template <class Kernel>
struct launcher {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using args_type = delta_rule_kernel_args;
  using kernels = walks<element_t<Kernel::config.type>, resolved(Kernel::config).key_dim, true>;

  static launcher of(const args_type& call, int /*multiprocessors*/, std::byte* /*workspace*/) {
    return {call};
  }

  static auto entries() { return kernels::entries(); }
  static std::size_t bytes() { return 0; }
  cudaError_t launch(cudaStream_t stream) const { return kernels::launch(args, {}, stream); }

  const args_type& args;
};

}  // namespace tessera::kernels::delta_rule::sm90
