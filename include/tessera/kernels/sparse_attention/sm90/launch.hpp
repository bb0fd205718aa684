// Launches of sparse attention with wgmma (compute capability 9.0, compiled for sm_90a):
// blocksparse attention forward by the dense kernels of sm90.
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr, for sm_90a alone.
#pragma once

#include <cstddef>
#include <type_traits>

#include <tessera/families/sparse_attention/config.hpp>
#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/families/sparse_attention/rules.hpp>
#include <tessera/kernels/cuda_entry_points.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/sparse_attention/sm80/dense_call.hpp>
#include <tessera/kernels/sparse_attention/sm90/dense.hpp>
#include <tessera/kernels/sparse_attention/sm90/native_sparse.hpp>
#include <tessera/prim/common/hooks.hpp>

namespace tessera::kernels::sparse_attention::sm90 {

/// The launch of a row. `mask` is a functor that hides more pairs.
template <class Kernel>
struct launcher {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using args_type = sparse_attention_kernel_args;

  template <class Mask = prim::no_mask_functor>
  static auto of(const args_type& args, int multiprocessors, std::byte* workspace,
                 const Mask& mask = {}) {
    if constexpr (Kernel::config.pattern == sparse_pattern::native_sparse) {
      static_assert(std::is_same_v<Mask, prim::no_mask_functor>,
                    "native sparse attention takes no functors");
      return native_sparse_forward_row<Kernel>(args.native_sparse, multiprocessors, workspace);
    } else {
      return sm80::dense_blocksparse_row<Kernel, Mask, dense_kernels<Kernel>>(
          args.blocksparse, mask, multiprocessors, workspace);
    }
  }
};

}  // namespace tessera::kernels::sparse_attention::sm90
