// The entry points of a row on the CPU, by its launcher.
//
// A family's room has a template `launcher<Kernel>`: its `args_type`, and a static
// `of(args, hooks...)` that makes a launch, an object with `workspace_bytes(threads)`, which reads
// no memory that the args point to, and `run(workspace, threads)`. Args come from `lower`; hooks
// are those of the header path.
#pragma once

#include <cstddef>

#include <tessera/kernels/cpu_row.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels {

/// A launch that needs no scratch memory: `body(threads)`.
template <class Body>
struct launch_without_workspace {
  Body body;

  static std::size_t workspace_bytes(int /*threads*/) { return 0; }
  void run(std::byte* /*workspace*/, int threads) const { body(threads); }
};
template <class Body>
launch_without_workspace(Body) -> launch_without_workspace<Body>;

template <class Launcher>
std::size_t cpu_entry_points<Launcher>::workspace_bytes(const void* kernel_args, int threads) {
  return Launcher::of(*static_cast<const typename Launcher::args_type*>(kernel_args))
      .workspace_bytes(threads);
}

template <class Launcher>
status cpu_entry_points<Launcher>::launch(const void* kernel_args, const launch_context& where) {
  return run_in_workspace(
      Launcher::of(*static_cast<const typename Launcher::args_type*>(kernel_args)), where);
}

}  // namespace tessera::kernels
