// Entry points of elementwise recurrences for GPUs (sm_80 and everything later): workspace,
// preparation and launch, with the signatures that the table of rows has.
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr.
#pragma once

#include <cstddef>
#include <type_traits>

#include <cuda_runtime.h>

#include <tessera/families/selective_scan/config.hpp>
#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/families/selective_scan/rules.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/selective_scan/sm80/rwkv4.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::selective_scan::sm80 {

/// A row's recurrence and direction.
template <class Kernel>
struct row_of_config {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  static constexpr bool is_rwkv4 = Kernel::config.recurrence == scan_recurrence::rwkv4;
  static constexpr bool shares_steps = Kernel::config.recurrence == scan_recurrence::state_space_v2;
  static constexpr bool backward = Kernel::config.pass == scan_pass::backward;
  using type =
      std::conditional_t<is_rwkv4, rwkv4_row<backward>, state_space_row<shares_steps, backward>>;

  static type of(const selective_scan_kernel_args& args, std::byte* workspace) {
    if constexpr (is_rwkv4) {
      return type(args.rwkv4, workspace);
    } else {
      return type(args.state_space, workspace);
    }
  }
};

/// Bytes of device memory that `launch` needs. Reads nothing that `args` points to.
template <class Kernel>
std::size_t workspace_bytes(const selective_scan_kernel_args& args, int /*multiprocessors*/) {
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
status launch(const selective_scan_kernel_args& args, const launch_context& context) {
  using row = row_of_config<Kernel>;
  const std::size_t bytes = workspace_bytes<Kernel>(args, context.threads);
  if (status done = cuda::ready<typename row::type>(context, bytes); !done) return done;
  const auto stream = static_cast<cudaStream_t>(context.stream);
  return cuda::launched(row::of(args, context.workspace).launch(stream));
}

}  // namespace tessera::kernels::selective_scan::sm80
