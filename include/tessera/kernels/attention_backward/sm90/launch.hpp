// Entry points of the gradients of attention for Hopper (sm_90a): those for all GPUs with a kernel
// of its own.
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr for sm_90a alone.
#pragma once

#include <cstddef>

#include <tessera/families/attention_backward/config.hpp>
#include <tessera/families/attention_backward/kernel_args.hpp>
#include <tessera/kernels/attention_backward/sm80/launch.hpp>
#include <tessera/kernels/attention_backward/sm90/gradients.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::attention_backward {

namespace sm80 {

template <class Kernel>
requires(Kernel::config.target == backend::cuda_sm90) struct one_pass<Kernel> {
  using tiles = sm90::hopper_tiles<Kernel::config.head_dim>;

  template <score_kind Kind, class Hooks>
  static constexpr auto kernel() {
    static_assert(!hooked_args<Hooks>::has_functors, "rows of cuda_sm90 take no functors");
    return &sm90::hopper_gradients<element_t<Kernel::config.type>, Kernel::config.head_dim, Kind>;
  }
};

}  // namespace sm80

namespace sm90 {

/// Bytes of device memory that `launch` needs. Reads nothing that `args` points to.
template <class Kernel>
std::size_t workspace_bytes(const attention_backward_kernel_args& args, int multiprocessors) {
  return sm80::workspace_bytes<Kernel>(args, multiprocessors);
}

template <class Kernel>
status prepare() {
  return sm80::prepare<Kernel>();
}

/// Runs the row's kernels on `context.stream` of the current device; returns before the work is
/// done. Can be captured in a graph once the device is ready (see `prepare`).
template <class Kernel>
status launch(const attention_backward_kernel_args& args, const launch_context& context) {
  return sm80::launch<Kernel>(args, context);
}

}  // namespace sm90
}  // namespace tessera::kernels::attention_backward
