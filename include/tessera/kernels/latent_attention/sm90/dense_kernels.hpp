// Expanded latents of bf16 on Hopper: the rows of attention and grouped_matmul that
// sm80/dense_forward.hpp stands on.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/families/grouped_matmul/config.hpp>
#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/families/latent_attention/config.hpp>
#include <tessera/kernels/attention/sm90/launch_rows.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/grouped_matmul/sm90/launch.hpp>
#include <tessera/prim/common/ceil_div.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::latent_attention::sm90 {

template <class Kernel, class Hooks = flash_hooks<>>
struct dense_kernels {
  Hooks hooks{};  ///< of attention

  struct attention_row {
    static constexpr attention_config config{
        .target = backend::cuda_sm90,
        .type = Kernel::config.type,
        .head_dim = widest_key,
        .v_head_dim = dense_value,
        .features = base_features | attention_feature::soft_cap,
        .block_q = 192,
        .block_kv = Hooks::has_mask ? 64 : 80,
        .tiling = {.warps = 16, .blocks_per_sm = 1}};
    static constexpr int tail_columns = 64;
  };
  template <int Columns>
  struct product_row {
    static constexpr grouped_matmul_config config{
        .target = backend::cuda_sm90, .type = Kernel::config.type, .block_n = Columns};
  };
  using narrow_product = grouped_matmul::sm90::launcher<product_row<128>>;
  using wide_product = grouped_matmul::sm90::launcher<product_row<256>>;

  static auto entries() {
    return cuda::joined(attention::sm90::row_kernels<attention_row, Hooks>::entries(),
                        grouped_matmul::sm90::row_kernels<product_row<128>>::entries(),
                        grouped_matmul::sm90::row_kernels<product_row<256>>::entries());
  }
  static std::size_t attention_bytes(const attention_kernel_args& args, int multiprocessors) {
    return attention::sm90::workspace_bytes_with<attention_row, Hooks>(args, multiprocessors);
  }
  status attend(const attention_kernel_args& args, const launch_context& context) const {
    return attention::sm90::launch_with<attention_row>(args, hooks, context);
  }
  /// Wide tiles read less, and are fewer: where two blocks have 256 rows and columns each pair of
  /// multiprocessors is to have one.
  static status multiply(const grouped_matmul_kernel_args& args, const launch_context& context) {
    constexpr std::int64_t side = 256;
    const std::int64_t blocks =
        2 * args.groups * prim::ceil_div(args.m, side) * prim::ceil_div(args.n, side);
    const bool wide = args.n >= side && blocks > 9 * context.threads / 10;
    return wide ? cuda::launch<wide_product>(args, context)
                : cuda::launch<narrow_product>(args, context);
  }
};

}  // namespace tessera::kernels::latent_attention::sm90
