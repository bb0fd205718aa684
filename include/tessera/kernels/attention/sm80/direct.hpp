// The header path on NVIDIA GPUs: everything known when compiling, nothing to link but the CUDA
// runtime.
//
//   struct my_row {
//     static constexpr tessera::attention_config config{.target = tessera::backend::cuda_sm80,
//                                                   .type = tessera::dtype::bf16, .head_dim = 128};
//   };
//   tessera::status done = tessera::launch<my_row>(args, {.causal = true},
//                                                  tessera::cuda{.stream = stream});
//
// A row of cuda_sm90 is launched the same way, in a unit that is compiled for sm_90a alone.
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr; functors are marked TESSERA_HD (lambdas
// also need --extended-lambda).
#pragma once

#include <cstddef>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/fits.hpp>
#include <tessera/families/attention/operations.hpp>
#include <tessera/families/attention/options.hpp>
#include <tessera/families/attention/problem.hpp>
#include <tessera/kernels/attention/sm80/launch.hpp>
#include <tessera/kernels/attention/sm90/launch.hpp>
#include <tessera/kernels/direct.hpp>
#include <tessera/kernels/direct_cuda.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

namespace kernels::attention::sm80 {

/// What a row of either back end asks for and does.
template <class Kernel, class Hooks>
std::size_t workspace_bytes_of(const attention_kernel_args& args, int multiprocessors) {
  if constexpr (Kernel::config.target == backend::cuda_sm90) {
    return sm90::workspace_bytes_with<Kernel, Hooks>(args, multiprocessors);
  } else {
    return workspace_bytes<Kernel>(args, multiprocessors);
  }
}
template <class Kernel, class Hooks>
status launch_of(const attention_kernel_args& args, const Hooks& hooks,
                 const launch_context& context) {
  if constexpr (Kernel::config.target == backend::cuda_sm90) {
    return sm90::launch_with<Kernel>(args, hooks, context);
  } else {
    return launch_with<Kernel>(args, hooks, context);
  }
}

/// `launch` on a device, which becomes the current one meanwhile, of a validated call;
/// `finish(lowered, stream)` writes what the kernel does not.
template <class Kernel, class Problem, class Hooks, class Finish>
status launch_direct(const Problem& problem, attention_kernel_args& lowered, device_id device,
                     const cuda& where, const Hooks& hooks, const Finish& finish) {
  lowered.batch_invariant = where.batch_invariant;
  return direct::launch_on_device(
      resolved(Kernel::config), problem, device, where,
      [&](int multiprocessors) {
        return workspace_bytes_of<Kernel, Hooks>(lowered, multiprocessors);
      },
      [&](const launch_context& context) -> status {
        if (status done = launch_of<Kernel>(lowered, hooks, context); !done) return done;
        return finish(lowered, where.stream);
      });
}

}  // namespace kernels::attention::sm80

/// Runs `Kernel` on the GPU that the tensors lie on: same arguments, options, checks and
/// results as `flash_attention` (with args.weights: as `attention`), and nothing is looked up.
/// `hooks` are compiled into the tile loop (see flash_hooks). Returns when the work is in the
/// stream.
///
/// Errors: those of `flash_attention`, and status_code::ineligible_row if the row's config does not
/// take the problem ("head_dim is 96, the row has 128").
template <class Kernel, class Hooks = flash_hooks<>>
requires prim::is_hooks<Hooks> status launch(const flash_attention_args& args,
                                             const flash_attention_options& options,
                                             const cuda& where, const Hooks& hooks = {}) {
  const flash_op op = args.weights.present() ? flash_op::attention : flash_op::flash_attention;
  attention_kernel_args lowered;
  device_id device;
  if (status done = lower(op, args, options, lowered, &device); !done) return done;
  const auto finish = [&](const attention_kernel_args& ran, void* stream) -> status {
    if constexpr (Kernel::config.features.has(attention_feature::dropout)) {
      if (args.dropout_mask.present()) {
        return kernels::attention::launch_dropout_mask<Kernel>(args.dropout_mask, ran, stream);
      }
    }
    return {};
  };
  return kernels::attention::sm80::launch_direct<Kernel>(problem_of(args, options, op), lowered,
                                                         device, where, hooks, finish);
}

/// The same with default options; a row whose mask is `causal` runs a causal problem.
template <class Kernel, class Hooks = flash_hooks<>>
requires prim::is_hooks<Hooks> status launch(const flash_attention_args& args, const cuda& where,
                                             const Hooks& hooks = {}) {
  return launch<Kernel>(args, {.causal = Kernel::config.mask == mask_mode::causal}, where, hooks);
}

/// The same for other operations, by their enumerators: `launch<row>(page_op::page_attention, args,
/// options, where)` with a row whose config has `keys` paged.
template <class Kernel, class Op, class Hooks = flash_hooks<>>
requires prim::is_hooks<Hooks> status
launch(Op op, const typename operation_table<Op>::problem_type::args_type& args,
       const typename operation_table<Op>::problem_type::options_type& options, const cuda& where,
       const Hooks& hooks = {}) {
  attention_kernel_args lowered;
  device_id device;
  if (status done = lower(op, args, options, lowered, &device); !done) return done;
  const auto nothing = [](const attention_kernel_args&, void*) { return status(); };
  return kernels::attention::sm80::launch_direct<Kernel>(problem_of(args, options, op), lowered,
                                                         device, where, hooks, nothing);
}

}  // namespace tessera
