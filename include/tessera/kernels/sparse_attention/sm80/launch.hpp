// Launches of sparse attention for GPUs (sm_80 and everything later).
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr.
#pragma once

#include <cstddef>

#include <tessera/families/sparse_attention/config.hpp>
#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/families/sparse_attention/rules.hpp>
#include <tessera/kernels/cuda_entry_points.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/sparse_attention/sm80/blocksparse.hpp>
#include <tessera/kernels/sparse_attention/sm80/dense.hpp>
#include <tessera/kernels/sparse_attention/sm80/dense_backward.hpp>
#include <tessera/kernels/sparse_attention/sm80/native_sparse.hpp>
#include <tessera/prim/common/hooks.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

/// The launch of a row's pattern, direction and operands. `mask` is a functor that hides more pairs
/// of blocksparse attention.
template <class Kernel>
struct launcher {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using args_type = sparse_attention_kernel_args;

  template <class Mask = prim::no_mask_functor>
  static auto of(const args_type& args, int multiprocessors, std::byte* workspace,
                 const Mask& mask = {}) {
    constexpr bool backward = Kernel::config.pass == sparse_pass::backward;
    constexpr bool on_matrix_unit = Kernel::config.type != dtype::none;
    if constexpr (Kernel::config.pattern == sparse_pattern::native_sparse) {
      static_assert(!is_functor<Mask>, "native sparse attention takes no functors");
      using launch = std::conditional_t<backward, native_sparse_backward_row<Kernel>,
                                        native_sparse_forward_row<Kernel>>;
      return launch(args.native_sparse, multiprocessors, workspace);
    } else if constexpr (on_matrix_unit && backward) {
      return dense_blocksparse_backward_row<Kernel, Mask>(args.blocksparse, mask, multiprocessors,
                                                          workspace);
    } else if constexpr (on_matrix_unit) {
      return dense_blocksparse_row<Kernel, Mask, dense_kernels<Kernel>>(args.blocksparse, mask,
                                                                        multiprocessors, workspace);
    } else {
      using launch = std::conditional_t<backward, blocksparse_backward_row<Kernel, Mask>,
                                        blocksparse_forward_row<Kernel, Mask>>;
      return launch(args.blocksparse, mask, multiprocessors, workspace);
    }
  }
};

}  // namespace tessera::kernels::sparse_attention::sm80
