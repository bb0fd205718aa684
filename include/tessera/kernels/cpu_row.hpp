// What the rows of families on the CPU share: the assertion that stops an illegal or mis-compiled
// row, and a launch in scratch memory.
#pragma once

#include <cstddef>

#include <tessera/kernels/row_is_legal.hpp>
#include <tessera/prim/common/workspace.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels {

/// The same of a row on the CPU, which besides needs the instructions of its back end.
template <class Kernel, auto Broken>
struct cpu_row_is_legal : row_is_legal<Kernel, Broken> {
  static_assert(isa::of<Kernel::config.target>::compiled,
                "this translation unit lacks the compiler flags of the row's backend "
                "(see tessera/prim/cpu/isa.hpp, or use -march=native)");
};

/// Runs a kernel that has `workspace_bytes(threads)` and `run(workspace, threads)`; refuses a
/// workspace that is too small.
template <class Launch>
status run_in_workspace(const Launch& kernel, const launch_context& context) {
  const std::size_t needed = kernel.workspace_bytes(context.threads);
  if (status done = prim::check_workspace({context.workspace, context.workspace_bytes}, needed);
      !done) {
    return done;
  }
  kernel.run(context.workspace, context.threads);
  return {};
}

}  // namespace tessera::kernels
