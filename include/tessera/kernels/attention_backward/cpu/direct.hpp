// The header path of the gradients of attention: everything known when compiling, nothing to link.
//
//   struct my_row {
//     static constexpr tessera::attention_backward_config config{
//         .target = tessera::native_cpu_backend, .head_dim = 128};
//   };
//   tessera::status done = tessera::launch<my_row>(args, {.causal = true}, tessera::cpu{}, hooks);
//
// Compile with OpenMP and the flags of the row's backend (-march=native gives the machine's own).
#pragma once

#include <cstddef>
#include <span>

#include <tessera/families/attention_backward/args.hpp>
#include <tessera/families/attention_backward/declaration.hpp>
#include <tessera/families/attention_backward/fits.hpp>
#include <tessera/families/attention_backward/problem.hpp>
#include <tessera/kernels/attention_backward/cpu/launch.hpp>
#include <tessera/kernels/direct.hpp>
#include <tessera/prim/common/hook_gradients.hpp>
#include <tessera/prim/common/workspace.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Runs the kernel `Kernel` on the CPU: same arguments, options, checks and results as
/// `flash_attention_backward` (with args.d_weights: as `attention_backward`), and nothing is looked
/// up. `hooks` are those of the forward call, compiled into the tile loop; a functor of logits has
/// a derivative (`with_slope`), and may have parameters, whose gradients are written then (see
/// prim/common/hook_gradients.hpp).
///
/// Errors: those of `flash_attention_backward`, status_code::device if a row of cpu_amx_bf16 may
/// not use the tile registers here, and status_code::ineligible_row if the row's config does not
/// take the problem ("head_dim is 96, the row has 128").
template <class Kernel, class Hooks = flash_hooks<>>
requires prim::is_hooks<Hooks> status launch(const attention_backward_args& args,
                                             const flash_attention_options& options,
                                             const cpu& where = {}, const Hooks& hooks = {}) {
  namespace kernel = kernels::attention_backward::cpu;
  using row = kernel::hooked_row<Kernel, Hooks>;
  using isa_type = typename kernel::traits<row>::isa_type;
  const attention_backward_op op = args.d_weights.present()
                                       ? attention_backward_op::attention_backward
                                       : attention_backward_op::flash_attention_backward;
  attention_backward_kernel_args lowered;
  if (status done = lower(op, args, options, lowered); !done) return done;
  if (status done = direct::check_row(resolved(Kernel::config), problem_of(args, options, op));
      !done) {
    return done;
  }
  if constexpr (has_tile_products(Kernel::config.target)) {
    if (status done = direct::check_tiles<isa_type>(); !done) return done;
  }
  const int threads = direct::threads_of(where);
  const std::size_t bytes = kernel::workspace_bytes_with<row>(lowered, hooks, threads);
  std::span<std::byte> memory;
  if (status done = prim::find_workspace<isa_type>(where.workspace, bytes, memory); !done) {
    return done;
  }
  return kernel::launch_with<row>(lowered, hooks, {threads, memory.data(), memory.size()});
}

}  // namespace tessera
