// The entry points of a row on GPUs, by its launcher.
//
// A family's room has a template `launcher<Kernel>`: its `args_type`, and a static
// `of(args, multiprocessors, workspace, hooks...)` that makes a launch and touches no device: an
// object with
//
// | member | what |
// |---|---|
// | static entries() | the kernels of the row: a device is readied for all of them at once |
// | bytes() | of the workspace; depends on no address, and `workspace` may be null for it |
// | launch(stream) or launch(context) | queues the work: a status or a cudaError_t |
//
// Args come from `lower`; hooks are those of the header path. Launches can be captured in a graph
// once the device is ready (see `prepare`).
#pragma once

#include <cstddef>
#include <utility>

#include <cuda_runtime.h>

#include <tessera/kernels/cuda_row.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels {
namespace cuda {

/// Kernels of the row may start before those before them in the stream have ended: true on devices
/// that can, once the current one is ready.
template <class RowKernels>
bool starts_early() {
  int device = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         prim::cuda::readiness<RowKernels>::dependent(device);
}

inline status launched(status done) {
  return done;
}

/// Bytes of device memory that a launch needs. Reads nothing that `args` points to.
template <class Launcher, class... Hooks>
std::size_t workspace_bytes(const typename Launcher::args_type& args, int multiprocessors,
                            const Hooks&... hooks) {
  return Launcher::of(args, multiprocessors, nullptr, hooks...).bytes();
}

/// Queues a launch on `where.stream` of the current device, which is readied for it, and returns
/// before the work is done. `where.threads` is the number of its multiprocessors.
template <class Launcher, class... Hooks>
status launch(const typename Launcher::args_type& args, const launch_context& where,
              const Hooks&... hooks) {
  auto call = Launcher::of(args, where.threads, where.workspace, hooks...);
  if (status done = ready<decltype(call)>(where, call.bytes()); !done) return done;
  if constexpr (requires { call.launch(where); }) {
    return launched(call.launch(where));
  } else {
    return launched(call.launch(static_cast<cudaStream_t>(where.stream)));
  }
}

}  // namespace cuda

template <class Launcher>
std::size_t cuda_entry_points<Launcher>::workspace_bytes(const void* kernel_args,
                                                         int multiprocessors) {
  return cuda::workspace_bytes<Launcher>(
      *static_cast<const typename Launcher::args_type*>(kernel_args), multiprocessors);
}

template <class Launcher>
status cuda_entry_points<Launcher>::launch(const void* kernel_args, const launch_context& where) {
  return cuda::launch<Launcher>(*static_cast<const typename Launcher::args_type*>(kernel_args),
                                where);
}

/// Readies the current device for launches of the row: refuses (status_code::device) a device that
/// the binary holds no code for. The first launch does the same.
template <class Launcher>
status cuda_entry_points<Launcher>::prepare() {
  using args_type = typename Launcher::args_type;
  return cuda::prepare<decltype(Launcher::of(std::declval<const args_type&>(), 0, nullptr))>();
}

}  // namespace tessera::kernels
