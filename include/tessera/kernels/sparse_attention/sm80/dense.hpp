// Blocksparse attention of f16 and bf16 by the dense kernels for the matrix unit, whose tile
// iterator goes over the tiles that are seen (listed_tiles.hpp): the same loop, and with nothing
// hidden the same bits. Without positions, causality and windows are intervals of keys there too.
#pragma once

#include <cstddef>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/kernels/attention/sm80/launch.hpp>
#include <tessera/kernels/sparse_attention/sm80/dense_call.hpp>
#include <tessera/kernels/sparse_attention/sm80/listed_tiles.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

/// The row of attention that a row of blocksparse attention stands on.
template <class Kernel>
struct dense_row {
  static constexpr attention_config config{
      .target = backend::cuda_sm80,
      .type = Kernel::config.type,
      .head_dim = Kernel::config.head_dim,
      .features = base_features | attention_feature::soft_cap,
      .tiling = {.warps = 4, .blocks_per_sm = 2, .q_in_registers = Kernel::config.head_dim <= 64}};
};

/// Its kernels.
template <class Kernel>
struct dense_kernels {
  using row = dense_row<Kernel>;

  template <class Hooks>
  static std::size_t workspace_bytes(const attention_kernel_args& call, int multiprocessors) {
    return attention::sm80::workspace_bytes<row>(call, multiprocessors);
  }
  template <class Hooks>
  static auto entries() {
    return attention::sm80::row_kernels<row, Hooks>::entries();
  }
  template <class Hooks>
  static status launch(const attention_kernel_args& call, const Hooks& hooks,
                       const launch_context& context) {
    return attention::sm80::launch_with<row>(call, hooks, context);
  }
};

}  // namespace tessera::kernels::sparse_attention::sm80
