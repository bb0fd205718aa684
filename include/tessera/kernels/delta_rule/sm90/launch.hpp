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
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::delta_rule::sm90 {

/// The launch of a row.
template <class Kernel>
struct launcher {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using args_type = delta_rule_kernel_args;
  using element = element_t<Kernel::config.type>;
  using shape = walk_shape<resolved(Kernel::config).key_dim>;
  static constexpr int shared_bytes = static_cast<int>(sizeof(walk_memory<shape>));
  static constexpr auto kernel = &chunk_through<element, shape>;

  static launcher of(const args_type& call, int /*multiprocessors*/, std::byte* /*workspace*/) {
    return {call};
  }

  static auto entries() { return std::array{cuda::entry_of(kernel, shared_bytes)}; }
  static std::size_t bytes() { return 0; }
  cudaError_t launch(cudaStream_t stream) const {
    const std::int64_t tiles = (args.value_dim + shape::columns - 1) / shape::columns;
    const std::int64_t blocks = sequences_with_rest(args) * args.value_heads * tiles;
    if (blocks <= 0) return cudaSuccess;
    return prim::cuda::launch_kernel(kernel, cuda::grid_of(blocks), shape::threads, shared_bytes,
                                     stream, false, args, further_decays{},
                                     static_cast<int>(tiles));
  }

  const args_type& args;
};

}  // namespace tessera::kernels::delta_rule::sm90
