// The header path of the gradients of attention on NVIDIA GPUs: everything known when compiling,
// nothing to link but the CUDA runtime.
//
//   struct my_row {
//     static constexpr tessera::attention_backward_config config{
//         .target = tessera::backend::cuda_sm80, .type = tessera::dtype::bf16, .head_dim = 128,
//         .d_q_atomics = true};
//   };
//   tessera::status done = tessera::launch<my_row>(args, {.causal = true},
//                                                  tessera::cuda{.stream = stream}, hooks);
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr; functors are marked TESSERA_HD.
#pragma once

#include <cstddef>
#include <span>

#include <tessera/families/attention_backward/args.hpp>
#include <tessera/families/attention_backward/declaration.hpp>
#include <tessera/families/attention_backward/fits.hpp>
#include <tessera/families/attention_backward/problem.hpp>
#include <tessera/kernels/attention_backward/sm80/launch.hpp>
#include <tessera/kernels/direct.hpp>
#include <tessera/kernels/direct_cuda.hpp>
#include <tessera/prim/common/hook_gradients.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Runs `Kernel` on the GPU that the tensors lie on: same arguments, options, checks and results as
/// `flash_attention_backward` (with args.d_weights: as `attention_backward`), and nothing is looked
/// up. `hooks` are those of the forward call, compiled into the tile loop; a functor of logits has
/// a derivative (`with_slope`), and may have parameters, whose gradients are added up in memory, in
/// no order (see prim/common/hook_gradients.hpp). Returns when the work is in the stream.
///
/// Errors: those of `flash_attention_backward`, and status_code::ineligible_row if the row's config
/// does not take the problem ("head_dim is 96, the row has 128").
template <class Kernel, class Hooks = flash_hooks<>>
requires prim::is_hooks<Hooks> status launch(const attention_backward_args& args,
                                             const flash_attention_options& options,
                                             const cuda& where, const Hooks& hooks = {}) {
  namespace kernel = kernels::attention_backward::sm80;
  const attention_backward_op op = args.d_weights.present()
                                       ? attention_backward_op::attention_backward
                                       : attention_backward_op::flash_attention_backward;
  attention_backward_kernel_args lowered;
  device_id device;
  if (status done = lower(op, args, options, lowered, &device); !done) return done;
  return direct::launch_on_device(
      resolved(Kernel::config), problem_of(args, options, op), device, where,
      [&](int) { return kernel::workspace_bytes<Kernel>(lowered, 0); },
      [&](const launch_context& context) {
        return kernel::launch_with<Kernel>(lowered, hooks, context);
      });
}

}  // namespace tessera
