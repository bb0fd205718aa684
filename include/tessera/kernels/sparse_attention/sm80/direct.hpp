// The header path on NVIDIA GPUs: everything known when compiling, nothing to link but the CUDA
// runtime.
//
//   struct my_row {
//     static constexpr tessera::sparse_attention_config config{
//         .target = tessera::backend::cuda_sm80, .type = tessera::dtype::bf16, .head_dim = 128};
//   };
//   tessera::status done = tessera::launch<my_row>(args, {}, tessera::cuda{.stream = stream},
//                                                  tessera::with_mask(same_document));
//
// A row of cuda_sm90 is launched the same way, in a unit that is compiled for sm_90a alone.
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr; functors are marked TESSERA_HD (lambdas
// also need --extended-lambda).
#pragma once

#include <cstddef>
#include <type_traits>

#include <tessera/families/sparse_attention/block_mask.hpp>
#include <tessera/families/sparse_attention/block_selection_args.hpp>
#include <tessera/families/sparse_attention/block_selection_options.hpp>
#include <tessera/families/sparse_attention/blocksparse_args.hpp>
#include <tessera/families/sparse_attention/blocksparse_options.hpp>
#include <tessera/families/sparse_attention/declaration.hpp>
#include <tessera/families/sparse_attention/fits.hpp>
#include <tessera/families/sparse_attention/native_sparse_args.hpp>
#include <tessera/families/sparse_attention/native_sparse_options.hpp>
#include <tessera/families/sparse_attention/problem.hpp>
#include <tessera/kernels/direct.hpp>
#include <tessera/kernels/direct_cuda.hpp>
#include <tessera/kernels/sparse_attention/sm80/block_mask.hpp>
#include <tessera/kernels/sparse_attention/sm80/launch.hpp>
#include <tessera/kernels/sparse_attention/sm90/launch.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

namespace direct {

/// A call of an operation by the kernels of `Kernel`.
template <class Kernel, class Op, class Args, class Options, class Mask>
status launch_sparse(Op op, const Args& args, const Options& options, const cuda& where,
                     const Mask& mask) {
  namespace kernels_of = kernels::sparse_attention;
  constexpr bool on_sm90 = Kernel::config.target == backend::cuda_sm90;
  sparse_attention_kernel_args lowered;
  device_id device;
  if (status done = lower(op, args, options, lowered, &device); !done) return done;
  using row = std::conditional_t<on_sm90, kernels_of::sm90::launcher<Kernel>,
                                 kernels_of::sm80::launcher<Kernel>>;
  return launch_on_device(
      Kernel::config, problem_of(args, options, op), device, where,
      [&](int multiprocessors) {
        return kernels::cuda::workspace_bytes<row>(lowered, multiprocessors, mask);
      },
      [&](const launch_context& context) {
        return kernels::cuda::launch<row>(lowered, context, mask);
      });
}

}  // namespace direct

/// Runs `Kernel` on the GPU that the tensors lie on: same arguments, options, checks and results as
/// `blocksparse_attention`, and nothing is looked up. The mask functor of `hooks` is asked as on
/// the CPU (kernels/sparse_attention/cpu/direct.hpp). Returns when the work is in the stream.
template <class Kernel, class Mask = prim::no_mask_functor>
status launch(const blocksparse_attention_args& args, const blocksparse_attention_options& options,
              const cuda& where, const mask_hooks<Mask>& hooks = {}) {
  return direct::launch_sparse<Kernel>(blocksparse_op::blocksparse_attention, args, options, where,
                                       hooks.mask);
}

/// The same for `blocksparse_attention_backward`: the functor is that of the forward call.
template <class Kernel, class Mask = prim::no_mask_functor>
status launch(const blocksparse_attention_backward_args& args,
              const blocksparse_attention_options& options, const cuda& where,
              const mask_hooks<Mask>& hooks = {}) {
  return direct::launch_sparse<Kernel>(blocksparse_backward_op::blocksparse_attention_backward,
                                       args, options, where, hooks.mask);
}

/// The same for `native_sparse_attention` and its gradients, without functors.
template <class Kernel>
status launch(const native_sparse_attention_args& args,
              const native_sparse_attention_options& options, const cuda& where) {
  return direct::launch_sparse<Kernel>(native_sparse_op::native_sparse_attention, args, options,
                                       where, prim::no_mask_functor{});
}
template <class Kernel>
status launch(const native_sparse_attention_backward_args& args,
              const native_sparse_attention_options& options, const cuda& where) {
  return direct::launch_sparse<Kernel>(native_sparse_backward_op::native_sparse_attention_backward,
                                       args, options, where, prim::no_mask_functor{});
}
/// The same for `block_selection`, by a row of native sparse attention forward.
template <class Kernel>
status launch(const block_selection_args& args, const block_selection_options& options,
              const cuda& where) {
  return direct::launch_sparse<Kernel>(block_selection_op::block_selection, args, options, where,
                                       prim::no_mask_functor{});
}

}  // namespace tessera
