// Entry points of sparse attention with wgmma (compute capability 9.0, compiled for sm_90a):
// blocksparse attention forward by the dense kernels of sm90.
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr, for sm_90a alone.
#pragma once

#include <cstddef>

#include <tessera/families/sparse_attention/config.hpp>
#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/families/sparse_attention/rules.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/sparse_attention/sm80/dense_call.hpp>
#include <tessera/kernels/sparse_attention/sm90/dense.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::sparse_attention::sm90 {

/// `Mask` is a functor that hides more pairs.
template <class Kernel, class Mask = prim::no_mask_functor>
struct row_of_config {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using type = sm80::dense_blocksparse_row<Kernel, Mask, dense_kernels<Kernel>>;

  static type of(const sparse_attention_kernel_args& args, const Mask& mask, int multiprocessors,
                 std::byte* workspace) {
    return type(args.blocksparse, mask, multiprocessors, workspace);
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

}  // namespace tessera::kernels::sparse_attention::sm90
