// Entry points of the kernels of sparse attention on the CPU.
#pragma once

#include <cstddef>
#include <type_traits>

#include <tessera/families/sparse_attention/config.hpp>
#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/families/sparse_attention/rules.hpp>
#include <tessera/kernels/cpu_row.hpp>
#include <tessera/kernels/sparse_attention/cpu/blocksparse_backward.hpp>
#include <tessera/kernels/sparse_attention/cpu/blocksparse_forward.hpp>
#include <tessera/kernels/sparse_attention/cpu/native_sparse_backward.hpp>
#include <tessera/kernels/sparse_attention/cpu/native_sparse_forward.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::sparse_attention::cpu {

/// The launch of a row's pattern and direction. `mask` is a functor that hides more pairs of
/// blocksparse attention.
template <class Kernel, class Mask = prim::no_mask_functor>
auto launch_of(const sparse_attention_kernel_args& args, const Mask& mask = {}) {
  static_assert(cpu_row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  constexpr bool backward = Kernel::config.pass == sparse_pass::backward;
  if constexpr (Kernel::config.pattern == sparse_pattern::blocksparse) {
    using kernel = std::conditional_t<backward, blocksparse_backward<Kernel, Mask>,
                                      blocksparse_forward<Kernel, Mask>>;
    return kernel(args.blocksparse, mask);
  } else {
    static_assert(!is_functor<Mask>, "native sparse attention takes no functors");
    using kernel =
        std::conditional_t<backward, native_sparse_backward<Kernel>, native_sparse_forward<Kernel>>;
    return kernel(args.native_sparse);
  }
}

/// Bytes of scratch memory for `launch`. Reads no memory that `args` points to.
template <class Kernel>
std::size_t workspace_bytes(const sparse_attention_kernel_args& args, int threads) {
  return launch_of<Kernel>(args).workspace_bytes(threads);
}

/// Runs the row's kernel. `args` come from `lower`.
template <class Kernel>
status launch(const sparse_attention_kernel_args& args, const launch_context& context) {
  return run_in_workspace(launch_of<Kernel>(args), context);
}
/// The same with a mask functor.
template <class Kernel, class Mask>
status launch_with(const sparse_attention_kernel_args& args, const Mask& mask,
                   const launch_context& context) {
  return run_in_workspace(launch_of<Kernel>(args, mask), context);
}

}  // namespace tessera::kernels::sparse_attention::cpu
