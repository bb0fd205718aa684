// Blocksparse attention of f16 and bf16 by the dense kernels of sm90, whose planner and producer
// leave out tiles of keys that are hidden and whose consumers ask about pairs where some are.
//
// Tiles have 128 rows and 128 keys, which blocks of masks mostly have too: larger tiles of rows
// would see blocks of keys that half of them do not.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <vector>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/kernels/attention/sm90/launch_rows.hpp>
#include <tessera/kernels/sparse_attention/sm80/dense_call.hpp>
#include <tessera/kernels/sparse_attention/sm90/tile_scan.hpp>
#include <tessera/kernels/sparse_attention/sm90/whole_blocks.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::sparse_attention::sm90 {

template <class Kernel>
struct dense_kernels {
  static constexpr attention_config config_of(attention_features features) {
    return {.target = backend::cuda_sm90,
            .type = Kernel::config.type,
            .head_dim = Kernel::config.head_dim,
            .features = features,
            .block_q = 128,
            .block_kv = 128,
            .tiling = {.warps = 12, .blocks_per_sm = 1}};
  }
  struct row {
    static constexpr attention_config config =
        config_of(base_features | attention_feature::soft_cap);
  };
  /// Of masks that show tiles or hide them, without the code for caps, pairs and functors.
  struct whole_row {
    static constexpr attention_config config = config_of(base_features);
  };
  using whole_hooks = sm80::blocksparse_hooks<whole_blocks>;
  template <class Hooks>
  static constexpr bool may_be_whole =
      std::is_same_v<Hooks, sm80::blocksparse_hooks<sm80::visible_pairs>>;

  template <class Hooks>
  static std::size_t workspace_bytes(const attention_kernel_args& call, int multiprocessors) {
    const attention_kernel_args whole = in_one_piece(call);
    const std::size_t bytes =
        attention::sm90::workspace_bytes_with<row, Hooks>(whole, multiprocessors);
    if constexpr (!may_be_whole<Hooks>) return bytes;
    return std::max(bytes, attention::sm90::workspace_bytes_with<whole_row, whole_hooks>(
                               whole, multiprocessors));
  }
  template <class Hooks>
  static std::vector<prim::cuda::kernel_entry> entries() {
    const auto kernels = attention::sm90::row_kernels<row, Hooks>::entries();
    std::vector<prim::cuda::kernel_entry> all(kernels.begin(), kernels.end());
    if constexpr (may_be_whole<Hooks>) {
      all.push_back(attention::sm90::row_kernels<whole_row, whole_hooks>::entries()[0]);
    }
    return all;
  }
  template <class Hooks>
  static status launch(const attention_kernel_args& call, const Hooks& hooks,
                       const launch_context& context) {
    const attention_kernel_args whole = in_one_piece(call);
    if constexpr (may_be_whole<Hooks>) {
      const int heads =
          schedule_sm90::schedule_of(whole_row::config, schedule_sm90::sizes_of(whole))
              .heads_of_tile;
      if (whole_blocks::are(hooks.mask, whole, heads, whole_row::config.block_kv)) {
        return attention::sm90::launch_with<whole_row>(
            whole, whole_hooks({}, whole_blocks{hooks.mask}), context);
      }
    }
    return attention::sm90::launch_with<row>(whole, hooks, context);
  }

 private:
  /// Work tiles whose keys are not cut: bits of a row follow from its own entry.
  static attention_kernel_args in_one_piece(attention_kernel_args call) {
    call.batch_invariant = true;
    return call;
  }
};

}  // namespace tessera::kernels::sparse_attention::sm90
