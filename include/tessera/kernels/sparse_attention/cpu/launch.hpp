// Launches of the kernels of sparse attention on the CPU.
#pragma once

#include <type_traits>

#include <tessera/families/sparse_attention/config.hpp>
#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/families/sparse_attention/rules.hpp>
#include <tessera/kernels/cpu_entry_points.hpp>
#include <tessera/kernels/cpu_row.hpp>
#include <tessera/kernels/sparse_attention/cpu/blocksparse_backward.hpp>
#include <tessera/kernels/sparse_attention/cpu/blocksparse_forward.hpp>
#include <tessera/kernels/sparse_attention/cpu/dense_forward.hpp>
#include <tessera/kernels/sparse_attention/cpu/native_sparse_backward.hpp>
#include <tessera/kernels/sparse_attention/cpu/native_sparse_forward.hpp>
#include <tessera/prim/common/hooks.hpp>

namespace tessera::kernels::sparse_attention::cpu {

/// The launch of a row's pattern and direction. `mask` is a functor that hides more pairs of
/// blocksparse attention.
template <class Kernel>
struct launcher {
  static_assert(cpu_row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using args_type = sparse_attention_kernel_args;

  template <class Mask = prim::no_mask_functor>
  static auto of(const args_type& args, const Mask& mask = {}) {
    constexpr bool backward = Kernel::config.pass == sparse_pass::backward;
    if constexpr (Kernel::config.pattern == sparse_pattern::blocksparse) {
      if constexpr (backward) {
        return blocksparse_backward<Kernel, Mask>(args.blocksparse, mask);
      } else if constexpr (Kernel::config.type != dtype::none) {
        return dense_blocksparse_forward<Kernel, Mask>(args.blocksparse, mask);
      } else {
        return blocksparse_forward<Kernel, Mask>(args.blocksparse, mask);
      }
    } else {
      static_assert(!is_functor<Mask>, "native sparse attention takes no functors");
      using kernel = std::conditional_t<backward, native_sparse_backward<Kernel>,
                                        native_sparse_forward<Kernel>>;
      return kernel(args.native_sparse);
    }
  }
};

}  // namespace tessera::kernels::sparse_attention::cpu
