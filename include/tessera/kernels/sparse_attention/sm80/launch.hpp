// Entry points of sparse attention for GPUs (sm_80 and everything later): workspace, preparation
// and launch, with the signatures that the table of rows has.
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr.
#pragma once

#include <cstddef>

#include <tessera/families/sparse_attention/config.hpp>
#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/families/sparse_attention/rules.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/sparse_attention/sm80/blocksparse.hpp>
#include <tessera/kernels/sparse_attention/sm80/dense.hpp>
#include <tessera/kernels/sparse_attention/sm80/dense_backward.hpp>
#include <tessera/kernels/sparse_attention/sm80/native_sparse.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

/// Of a row's pattern, direction and operands. `Mask` is a functor that hides more pairs of
/// blocksparse attention.
template <class Kernel, class Mask, sparse_pattern Pattern, bool Backward, bool OnMatrixUnit>
struct row_type;
template <class Kernel, class Mask>
struct row_type<Kernel, Mask, sparse_pattern::blocksparse, false, false> {
  using type = blocksparse_forward_row<Kernel, Mask>;
};
template <class Kernel, class Mask>
struct row_type<Kernel, Mask, sparse_pattern::blocksparse, true, false> {
  using type = blocksparse_backward_row<Kernel, Mask>;
};
template <class Kernel, class Mask>
struct row_type<Kernel, Mask, sparse_pattern::blocksparse, false, true> {
  using type = dense_blocksparse_row<Kernel, Mask, dense_kernels<Kernel>>;
};
template <class Kernel, class Mask>
struct row_type<Kernel, Mask, sparse_pattern::blocksparse, true, true> {
  using type = dense_blocksparse_backward_row<Kernel, Mask>;
};
template <class Kernel, bool OnMatrixUnit>
struct row_type<Kernel, prim::no_mask_functor, sparse_pattern::native_sparse, false, OnMatrixUnit> {
  using type = native_sparse_forward_row<Kernel>;
};
template <class Kernel>
struct row_type<Kernel, prim::no_mask_functor, sparse_pattern::native_sparse, true, false> {
  using type = native_sparse_backward_row<Kernel>;
};

template <class Kernel, class Mask = prim::no_mask_functor>
struct row_of_config {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  static constexpr bool is_blocksparse = Kernel::config.pattern == sparse_pattern::blocksparse;
  using type = typename row_type<Kernel, Mask, Kernel::config.pattern,
                                 Kernel::config.pass == sparse_pass::backward,
                                 Kernel::config.type != dtype::none>::type;

  static type of(const sparse_attention_kernel_args& args, const Mask& mask, int multiprocessors,
                 std::byte* workspace) {
    if constexpr (is_blocksparse) {
      return type(args.blocksparse, mask, multiprocessors, workspace);
    } else {
      return type(args.native_sparse, multiprocessors, workspace);
    }
  }
};

/// Bytes of device memory that `launch` needs. Reads nothing that `args` points to.
template <class Kernel>
std::size_t workspace_bytes(const sparse_attention_kernel_args& args, int multiprocessors) {
  return row_of_config<Kernel>::of(args, {}, multiprocessors, nullptr).bytes();
}

/// Readies the current device for launches of the row: refuses (status_code::device) a device that
/// the binary holds no code for. The first launch does the same.
template <class Kernel>
status prepare() {
  return cuda::prepare<typename row_of_config<Kernel>::type>();
}

/// `launch` with a mask functor.
template <class Kernel, class Mask>
status launch_with(const sparse_attention_kernel_args& args, const Mask& mask,
                   const launch_context& context) {
  using row = row_of_config<Kernel, Mask>;
  const std::size_t bytes = row::of(args, mask, context.threads, nullptr).bytes();
  if (status done = cuda::ready<typename row::type>(context, bytes); !done) return done;
  return row::of(args, mask, context.threads, context.workspace).launch(context);
}

/// Runs the row's kernels on `context.stream` of the current device; returns before the work is
/// done. Can be captured in a graph once the device is ready (see `prepare`).
template <class Kernel>
status launch(const sparse_attention_kernel_args& args, const launch_context& context) {
  return launch_with<Kernel>(args, prim::no_mask_functor{}, context);
}

}  // namespace tessera::kernels::sparse_attention::sm80
