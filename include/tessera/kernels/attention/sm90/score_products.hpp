// Products of a warpgroup's rows: of their queries with the keys of a tile, of weights with values.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm90/kept_queries.hpp>
#include <tessera/kernels/attention/sm90/softmax.hpp>
#include <tessera/prim/cuda/wgmma.hpp>

namespace tessera::kernels::attention::sm90 {

/// Asks for them; `queries` and `keys` describe the panels of the warpgroup's rows and of the tile.
template <class Traits>
__device__ __forceinline__ void multiply_scores(lane_tile<Traits>& lane, std::uint64_t queries,
                                                std::uint64_t keys) {
  using product = prim::cuda::warpgroup_product<typename Traits::element, Traits::block_kv>;
#pragma unroll
  for (int step = 0; step < Traits::qk_steps; ++step) {
    const int panel = step / 4;
    const int inside = step % 4 * 32;
    const std::uint64_t b =
        prim::cuda::described_further(keys, panel * Traits::kv_panel_bytes + inside);
    if constexpr (kept_queries<Traits>::steps > 0) {
      if (step >= kept_queries<Traits>::first) {
        product::sums_of_rows(lane.scores, lane.queries.of_step(step), b);
        continue;
      }
    }
    product::scores(lane.scores,
                    prim::cuda::described_further(queries, panel * Traits::q_panel_bytes + inside),
                    b, step != 0);
  }
}

/// Asks for sums of the weights of a tile times its first `Keys` values, which lie at `values`.
template <class Traits, int Keys>
__device__ __forceinline__ void multiply_weights(lane_tile<Traits>& lane, std::uint32_t values) {
  using product = prim::cuda::warpgroup_product<typename Traits::element, Traits::v_columns>;
  const std::uint64_t b = Traits::codes_of_heads
                              ? prim::cuda::describe_narrow_panel(values)
                              : prim::cuda::describe_panels(values, Traits::kv_panel_bytes);
  constexpr int step_bytes = Traits::codes_of_heads
                                 ? Traits::v_head_dim * prim::cuda::narrow_row_bytes
                                 : 16 * prim::cuda::panel_row_bytes;
#pragma unroll
  for (int step = 0; step < Keys / Traits::step_columns; ++step) {
    const prim::cuda::warpgroup_a a{{lane.weights[4 * step], lane.weights[4 * step + 1],
                                     lane.weights[4 * step + 2], lane.weights[4 * step + 3]}};
    product::sums_of(lane.out, a, b + prim::cuda::panel_step(step * step_bytes));
  }
  prim::cuda::commit_products();
}

}  // namespace tessera::kernels::attention::sm90
