// Score modification: from products q k to logits on the registers of a warp.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/common/score_mod_row.hpp>
#include <tessera/kernels/attention/common/score_mod_tile.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/warp_tile.hpp>
#include <tessera/kernels/attention/sm80/work_tile.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

/// From products to logits for all rows of a warp: which rows and keys its scores belong to, and
/// whether a tile is worked on as a whole or a row at a time. `State` is the `block_state`, which
/// lies in shared memory.
template <class Traits, class Hooks, class State>
class score_mod {
  using row_form = score_mod_row<Traits, Hooks>;
  using scores_type = prim::cuda::accumulator[Traits::row_tiles][Traits::key_tiles];
  static constexpr int row_tiles = Traits::row_tiles;

 public:
  __device__ __forceinline__ score_mod(warp_tile<Traits, State>& warp, const Hooks& hooks)
      : warp_(warp), args_(warp.args), hooks_(hooks), block_(warp.block) {}

  /// `looks`: mask tensor, segments or mask functor may hide something.
  __device__ __forceinline__ void apply(int key0, bool looks) const {
    scores_type& scores = warp_.scores;
    const auto thread = static_cast<int>(prim::cuda::thread_index());
    if constexpr (!row_form::calls_functors) {
      if (!row_form::reads || (args_.wide && can_read(key0))) {
        apply_to_tile(scores, thread, key0, looks);
        return;
      }
    }
    if constexpr (row_form::calls_functors || row_form::reads) {
      // One row at a time, each in the place of the first, so that the code is there once.
#pragma unroll 1
      for (int r = 0; r < 2 * row_tiles; ++r) {
        const int row = row_of_thread<Traits>(thread, r / 2, r % 2);
        row_form::apply(args_, hooks_, scores[0], 0, position_of(row), key0, keys_of(row), looks);
        turn_rows(scores);
      }
    }
  }

 private:
  /// Of a row of the block.
  __device__ __forceinline__ position position_of(int row) const {
    const query_row at = query_at(args_, block_, row);
    return {block_.work.seq.index, at.head, at.query, 0, at.query + block_.visible.mask.offset};
  }
  /// Empty for a row that is not used.
  __device__ __forceinline__ prim::key_interval keys_of(int row) const {
    return row < block_.work.used ? block_.visible.keys_of(query_at(args_, block_, row).query)
                                  : prim::key_interval{};
  }

  /// True if tensors have all keys of a tile.
  __device__ __forceinline__ bool can_read(int key0) const {
    const attention_kernel_args& call = args_.call;
    return key0 + Traits::block_kv <=
           (call.cu_seqlens_k != nullptr ? block_.work.seq.k_len : call.kv_len);
  }

  __device__ __forceinline__ void apply_to_tile(scores_type& scores, int thread, int key0,
                                                bool looks) const {
    const bool inside =
        block_.keys.full_begin <= key0 && block_.keys.full_end >= key0 + Traits::block_kv;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
      // Row tiles are apart, so that what tensors say of one is not fetched while another's takes
      // registers.
      if (row_form::reads && row_of_thread<Traits>(thread & ~31, m, 0) >= block_.work.used) {
        break;
      }
      const auto row_at = [&](int half) {
        return position_of(min(row_of_thread<Traits>(thread, m, half), block_.work.used - 1));
      };
      score_mod_tile<Traits, launch_args, decltype(row_at)> tile(args_, scores[m], row_at, thread,
                                                                 key0);
      if constexpr (row_form::changes) {
        if (!args_.plain) tile.change();
      }
      if (looks) tile.hide();
      if (!inside) {
        tile.clip([&](int half) { return keys_of(row_of_thread<Traits>(thread, m, half)); });
      }
    }
  }

  /// Each row takes the place of the one before, the first that of the last.
  static __device__ __forceinline__ void turn_rows(scores_type& scores) {
#pragma unroll
    for (int n = 0; n < Traits::key_tiles; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float first = scores[0][n].at[e];
#pragma unroll
        for (int r = 0; r + 1 < 2 * row_tiles; ++r) {
          scores[r / 2][n].at[r % 2 * 2 + e] = scores[(r + 1) / 2][n].at[(r + 1) % 2 * 2 + e];
        }
        scores[row_tiles - 1][n].at[2 + e] = first;
      }
    }
  }

  warp_tile<Traits, State>& warp_;
  const launch_args& args_;
  const Hooks& hooks_;
  const State& block_;
};

}  // namespace tessera::kernels::attention::sm80
