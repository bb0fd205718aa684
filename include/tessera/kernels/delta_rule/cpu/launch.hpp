// Entry points of the delta rule kernels.
#pragma once

#include <cstddef>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/cpu/backward.hpp>
#include <tessera/kernels/delta_rule/cpu/backward_scratch.hpp>
#include <tessera/kernels/delta_rule/cpu/forward.hpp>
#include <tessera/kernels/delta_rule/cpu/traits.hpp>
#include <tessera/prim/common/workspace.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::delta_rule::cpu {

/// Bytes of scratch memory for `launch`. Reads no memory that `args` points to.
template <class Row>
std::size_t workspace_bytes(const delta_rule_kernel_args& args, int threads) {
  if constexpr (traits<Row>::config.pass == delta_rule_pass::forward) {
    return static_cast<std::size_t>(threads) *
           static_cast<std::size_t>(forward_launch<Row>(args, threads).floats_of_thread()) *
           sizeof(float);
  } else {
    return backward_scratch<Row>::bytes_of_launch(args, threads);
  }
}

/// Runs the row's kernel. `args` come from `lower`.
template <class Row>
status launch(const delta_rule_kernel_args& args, const launch_context& context) {
  const std::size_t needed = workspace_bytes<Row>(args, context.threads);
  if (status done = prim::check_workspace({context.workspace, context.workspace_bytes}, needed);
      !done) {
    return done;
  }
  if constexpr (traits<Row>::config.pass == delta_rule_pass::forward) {
    forward_launch<Row>(args, context.threads).run(reinterpret_cast<float*>(context.workspace));
  } else {
    backward_launch<Row>(args).run(context.workspace, context.threads);
  }
  return {};
}

}  // namespace tessera::kernels::delta_rule::cpu
