// What the rows of families on the CPU share: the assertion that stops an illegal or mis-compiled
// row, and a launch in scratch memory.
#pragma once

#include <cstddef>

#include <tessera/prim/common/workspace.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels {

/// Instantiated for every row that is compiled; `Broken` is the family's rule that the row breaks.
/// The compiler's message shows `Kernel` and `Broken`.
template <class Kernel, auto Broken>
struct row_is_legal {
  static_assert(Broken == decltype(Broken)::none,
                "this row breaks the rule named by the second template argument");
  static_assert(isa::of<Kernel::config.target>::compiled,
                "this translation unit lacks the compiler flags of the row's backend "
                "(see tessera/prim/cpu/isa.hpp, or use -march=native)");
  static constexpr bool value = true;
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
