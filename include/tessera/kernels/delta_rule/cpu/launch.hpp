// Entry points of the delta rule kernels.
#pragma once

#include <cstddef>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/cpu/forward.hpp>
#include <tessera/kernels/delta_rule/cpu/traits.hpp>
#include <tessera/prim/common/workspace.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::delta_rule::cpu {

/// Bytes of scratch memory for `launch`. Reads no memory that `args` points to.
template <class Row>
std::size_t workspace_bytes(const delta_rule_kernel_args& args, int threads) {
  return static_cast<std::size_t>(threads) *
         static_cast<std::size_t>(forward_launch<Row>::floats_of_thread(args)) * sizeof(float);
}

/// Runs the row's kernel. `args` come from `lower`.
template <class Row>
status launch(const delta_rule_kernel_args& args, const launch_context& context) {
  const std::size_t needed = workspace_bytes<Row>(args, context.threads);
  if (status done = prim::check_workspace({context.workspace, context.workspace_bytes}, needed);
      !done) {
    return done;
  }
  auto* const memory = reinterpret_cast<float*>(context.workspace);
  forward_launch<Row>(args).run(memory, context.threads);
  return {};
}

}  // namespace tessera::kernels::delta_rule::cpu
