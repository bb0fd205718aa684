// The dense kernels of sm80 that expanded latents are attended to with (dense_forward.hpp).
#pragma once

#include <cstddef>
#include <vector>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/grouped_matmul/config.hpp>
#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/families/latent_attention/config.hpp>
#include <tessera/kernels/attention/sm80/launch.hpp>
#include <tessera/kernels/grouped_matmul/sm80/launch.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::latent_attention::sm80 {

template <class Kernel, class Hooks = flash_hooks<>>
struct dense_kernels {
  Hooks hooks{};  ///< of attention

  struct attention_row {
    static constexpr attention_config config{
        .target = backend::cuda_sm80,
        .type = Kernel::config.type,
        .head_dim = widest_key,
        .v_head_dim = dense_value,
        .features = base_features | attention_feature::soft_cap,
        .block_q = 128,
        .block_kv = 64,
        .tiling = {.warps = 8, .blocks_per_sm = 1}};
  };
  struct product_row {
    static constexpr grouped_matmul_config config{.target = backend::cuda_sm80,
                                                  .type = Kernel::config.type};
  };

  static std::vector<prim::cuda::kernel_entry> entries() {
    auto all = attention::sm80::row_kernels<attention_row, Hooks>::entries();
    for (const auto& entry : grouped_matmul::sm80::row_kernels<product_row>::entries()) {
      all.push_back(entry);
    }
    return all;
  }
  static std::size_t attention_bytes(const attention_kernel_args& args, int multiprocessors) {
    return attention::sm80::workspace_bytes<attention_row>(args, multiprocessors);
  }
  status attend(const attention_kernel_args& args, const launch_context& context) const {
    return attention::sm80::launch_with<attention_row>(args, hooks, context);
  }
  static status multiply(const grouped_matmul_kernel_args& args, const launch_context& context) {
    return cuda::launch<grouped_matmul::sm80::launcher<product_row>>(args, context);
  }
};

}  // namespace tessera::kernels::latent_attention::sm80
