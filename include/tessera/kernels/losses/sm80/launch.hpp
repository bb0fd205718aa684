// Entry points of fused losses for GPUs (sm_80 and everything later): workspace, preparation and
// launch, with the signatures that the table of rows has.
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr.
#pragma once

#include <cstddef>
#include <utility>

#include <cuda_runtime.h>

#include <tessera/families/losses/config.hpp>
#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/families/losses/rules.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/losses/sm80/cross_entropy.hpp>
#include <tessera/kernels/losses/sm80/kl_divergence.hpp>
#include <tessera/kernels/losses/sm80/linear_cross_entropy.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::losses::sm80 {

/// A row's loss and direction.
template <class Kernel>
struct row_of_config {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  static auto of(const losses_kernel_args& args, std::byte* workspace) {
    constexpr bool backward = Kernel::config.pass == loss_pass::backward;
    if constexpr (Kernel::config.loss == loss_kind::cross_entropy) {
      return cross_entropy_row<backward>(args, workspace);
    } else if constexpr (Kernel::config.loss == loss_kind::kl_divergence) {
      return kl_divergence_row<backward>(args, workspace);
    } else {
      return linear_cross_entropy_row<Kernel::config.type, backward>(args, workspace);
    }
  }
  using type = decltype(of(std::declval<const losses_kernel_args&>(), nullptr));
};

/// Bytes of device memory that `launch` needs. Reads nothing that `args` points to.
template <class Kernel>
std::size_t workspace_bytes(const losses_kernel_args& args, int /*multiprocessors*/) {
  return row_of_config<Kernel>::of(args, nullptr).bytes();
}

/// Readies the current device for launches of the row: refuses (status_code::device) a device that
/// the binary holds no code for. The first launch does the same.
template <class Kernel>
status prepare() {
  return cuda::prepare<typename row_of_config<Kernel>::type>();
}

/// Runs the row's kernels on `context.stream` of the current device; returns before the work is
/// done. Can be captured in a graph once the device is ready (see `prepare`).
template <class Kernel>
status launch(const losses_kernel_args& args, const launch_context& context) {
  using row = row_of_config<Kernel>;
  const std::size_t bytes = workspace_bytes<Kernel>(args, context.threads);
  if (status done = cuda::ready<typename row::type>(context, bytes); !done) return done;
  const auto stream = static_cast<cudaStream_t>(context.stream);
  return cuda::launched(row::of(args, context.workspace).launch(stream));
}

}  // namespace tessera::kernels::losses::sm80
