// Entry points of the delta rule in chunks with wgmma (compute capability 9.0, compiled for
// sm_90a): workspace, preparation and launch, with the signatures that the table of rows has.
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
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_forward.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::delta_rule::sm90 {

/// All kernels of a row.
template <class Kernel>
struct row_kernels {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using element = element_t<Kernel::config.type>;
  template <bool LowRank>
  using shape = walk_shape<resolved(Kernel::config).key_dim, LowRank>;
  template <bool LowRank>
  static constexpr int shared_bytes = static_cast<int>(sizeof(walk_memory<shape<LowRank>>));

  template <bool LowRank>
  static auto of_update() {
    return &chunk_through<element, shape<LowRank>>;
  }
  static auto entries() {
    return std::array{cuda::entry_of(of_update<false>(), shared_bytes<false>),
                      cuda::entry_of(of_update<true>(), shared_bytes<true>)};
  }
};

/// Bytes of device memory that `launch` needs.
template <class Kernel>
std::size_t workspace_bytes(const delta_rule_kernel_args&, int) {
  return 0;
}

/// Readies the current device for launches of the row: refuses (status_code::device) a device that
/// the binary holds no code for. The first launch does the same.
template <class Kernel>
status prepare() {
  return cuda::prepare<row_kernels<Kernel>>();
}

template <class Kernel, bool LowRank>
cudaError_t launch_update(const delta_rule_kernel_args& args, cudaStream_t stream) {
  using kernels_of = row_kernels<Kernel>;
  using shape = typename kernels_of::template shape<LowRank>;
  const std::int64_t tiles = (args.value_dim + shape::columns - 1) / shape::columns;
  const std::int64_t blocks = sequences_with_rest(args) * args.value_heads * tiles;
  if (blocks <= 0) return cudaSuccess;
  return prim::cuda::launch_kernel(kernels_of::template of_update<LowRank>(), cuda::grid_of(blocks),
                                   shape::threads, kernels_of::template shared_bytes<LowRank>,
                                   stream, false, args, static_cast<int>(tiles));
}

/// Runs the row's kernel on `context.stream` of the current device; returns before the work is
/// done. Can be captured in a graph once the device is ready (see `prepare`).
template <class Kernel>
status launch(const delta_rule_kernel_args& args, const launch_context& context) {
  if (status done = cuda::ready<row_kernels<Kernel>>(context, 0); !done) return done;
  const auto stream = static_cast<cudaStream_t>(context.stream);
  return cuda::launched(args.update == delta_rule_update::delta
                            ? launch_update<Kernel, false>(args, stream)
                            : launch_update<Kernel, true>(args, stream));
}

}  // namespace tessera::kernels::delta_rule::sm90
