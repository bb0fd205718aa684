// Entry points of latent attention with wgmma (compute capability 9.0, compiled for sm_90a):
// expanded latents, to which the dense kernels of sm90 attend (sm80/dense_forward.hpp).
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr, for sm_90a alone.
#pragma once

#include <cstddef>
#include <vector>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/grouped_matmul/config.hpp>
#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/families/latent_attention/config.hpp>
#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/families/latent_attention/rules.hpp>
#include <tessera/kernels/attention/sm90/launch.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/grouped_matmul/sm90/launch.hpp>
#include <tessera/kernels/latent_attention/sm80/dense_forward.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::latent_attention::sm90 {

template <class Kernel>
struct dense_kernels {
  struct attention_row {
    static constexpr attention_config config{
        .target = backend::cuda_sm90,
        .type = Kernel::config.type,
        .head_dim = widest_key,
        .v_head_dim = dense_value,
        .features = base_features | attention_feature::soft_cap,
        .block_q = 192,
        .block_kv = 80,
        .tiling = {.warps = 16, .blocks_per_sm = 1}};
  };
  struct product_row {
    static constexpr grouped_matmul_config config{.target = backend::cuda_sm90,
                                                  .type = Kernel::config.type};
  };

  static std::vector<prim::cuda::kernel_entry> entries() {
    std::vector<prim::cuda::kernel_entry> all;
    for (const auto& entry :
         attention::sm90::row_kernels<attention_row, flash_hooks<>>::entries()) {
      all.push_back(entry);
    }
    for (const auto& entry : grouped_matmul::sm90::row_kernels<product_row>::entries()) {
      all.push_back(entry);
    }
    return all;
  }
  static std::size_t attention_bytes(const attention_kernel_args& args, int multiprocessors) {
    return attention::sm90::workspace_bytes<attention_row>(args, multiprocessors);
  }
  status attend(const attention_kernel_args& args, const launch_context& context) const {
    return attention::sm90::launch<attention_row>(args, context);
  }
  static status multiply(const grouped_matmul_kernel_args& args, const launch_context& context) {
    return grouped_matmul::sm90::launch<product_row>(args, context);
  }
};

template <class Kernel>
struct row_kernels : sm80::dense_forward<dense_kernels<Kernel>> {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using sm80::dense_forward<dense_kernels<Kernel>>::dense_forward;
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
