// Blocksparse attention of f16 and bf16 by the dense kernels of sm90, whose planner and producer
// leave out tiles of keys that are hidden and whose consumers ask about pairs where some are.
//
// Tiles have 128 rows and 128 keys, which blocks of masks mostly have too: larger tiles of rows
// would see blocks of keys that half of them do not.
#pragma once

#include <cstddef>
#include <vector>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/kernels/attention/sm90/launch.hpp>
#include <tessera/kernels/sparse_attention/sm80/dense_call.hpp>
#include <tessera/kernels/sparse_attention/sm90/tile_scan.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::sparse_attention::sm90 {

template <class Kernel>
struct dense_kernels {
  struct row {
    static constexpr attention_config config{
        .target = backend::cuda_sm90,
        .type = Kernel::config.type,
        .head_dim = Kernel::config.head_dim,
        .features = base_features | attention_feature::soft_cap,
        .block_q = 128,
        .block_kv = 128,
        .tiling = {.warps = 12, .blocks_per_sm = 1}};
  };

  template <class Hooks>
  static std::size_t workspace_bytes(const attention_kernel_args& call, int multiprocessors) {
    return attention::sm90::workspace_bytes_with<row, Hooks>(in_one_piece(call), multiprocessors);
  }
  template <class Hooks>
  static std::vector<prim::cuda::kernel_entry> entries() {
    const auto kernels = attention::sm90::row_kernels<row, Hooks>::entries();
    return {kernels.begin(), kernels.end()};
  }
  template <class Hooks>
  static status launch(const attention_kernel_args& call, const Hooks& hooks,
                       const launch_context& context) {
    return attention::sm90::launch_with<row>(in_one_piece(call), hooks, context);
  }

 private:
  /// Work tiles whose keys are not cut: bits of a row follow from its own entry.
  static attention_kernel_args in_one_piece(attention_kernel_args call) {
    call.batch_invariant = true;
    return call;
  }
};

}  // namespace tessera::kernels::sparse_attention::sm90
