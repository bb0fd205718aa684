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

/// The kernel of a row.
template <class Kernel>
struct row_kernels {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using element = element_t<Kernel::config.type>;
  using shape = walk_shape<resolved(Kernel::config).key_dim>;
  static constexpr int shared_bytes = static_cast<int>(sizeof(walk_memory<shape>));
  static constexpr auto kernel = &chunk_through<element, shape>;

  static auto entries() { return std::array{cuda::entry_of(kernel, shared_bytes)}; }
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

/// Runs the row's kernel on `context.stream` of the current device; returns before the work is
/// done. Can be captured in a graph once the device is ready (see `prepare`).
template <class Kernel>
status launch(const delta_rule_kernel_args& args, const launch_context& context) {
  using of_row = row_kernels<Kernel>;
  using shape = typename of_row::shape;
  if (status done = cuda::ready<of_row>(context, 0); !done) return done;
  const std::int64_t tiles = (args.value_dim + shape::columns - 1) / shape::columns;
  const std::int64_t blocks = sequences_with_rest(args) * args.value_heads * tiles;
  if (blocks <= 0) return {};
  return cuda::launched(prim::cuda::launch_kernel(
      of_row::kernel, cuda::grid_of(blocks), shape::threads, of_row::shared_bytes,
      static_cast<cudaStream_t>(context.stream), false, args, static_cast<int>(tiles)));
}

}  // namespace tessera::kernels::delta_rule::sm90
