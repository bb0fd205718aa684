// Entry points of latent attention with wgmma (compute capability 9.0, compiled for sm_90a):
// expanded latents, to which the dense kernels of sm90 attend (sm80/dense_forward.hpp), and latents
// in pages.
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr, for sm_90a alone.
#pragma once

#include <cstddef>

#include <tessera/families/latent_attention/config.hpp>
#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/families/latent_attention/rules.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/latent_attention/sm80/dense_forward.hpp>
#include <tessera/kernels/latent_attention/sm90/absorbed_launch.hpp>
#include <tessera/kernels/latent_attention/sm90/dense_kernels.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::latent_attention::sm90 {

/// The launch of a row's form.
template <class Kernel, latent_form Form>
struct launch_of_form {
  using type = sm80::dense_forward<dense_kernels<Kernel>>;
};
template <class Kernel>
struct launch_of_form<Kernel, latent_form::absorbed> {
  using type = absorbed_launch<Kernel>;
};

template <class Kernel>
struct row_kernels : launch_of_form<Kernel, Kernel::config.form>::type {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using base = typename launch_of_form<Kernel, Kernel::config.form>::type;
  using base::base;
};

/// Bytes of device memory that `launch` needs. Reads nothing that `args` points to.
template <class Kernel>
std::size_t workspace_bytes(const latent_attention_kernel_args& args, int multiprocessors) {
  return row_kernels<Kernel>(args, multiprocessors, nullptr).bytes();
}

/// Readies the current device for launches of the row: refuses (status_code::device) a device that
/// the binary holds no code for. The first launch does the same.
template <class Kernel>
status prepare() {
  return cuda::prepare<row_kernels<Kernel>>();
}

/// Runs the row's kernels on `context.stream` of the current device; returns before the work is
/// done. Can be captured in a graph once the device is ready (see `prepare`).
template <class Kernel>
status launch(const latent_attention_kernel_args& args, const launch_context& context) {
  const std::size_t bytes = workspace_bytes<Kernel>(args, context.threads);
  if (status done = cuda::ready<row_kernels<Kernel>>(context, bytes); !done) return done;
  return row_kernels<Kernel>(args, context.threads, context.workspace).launch(context);
}

}  // namespace tessera::kernels::latent_attention::sm90
