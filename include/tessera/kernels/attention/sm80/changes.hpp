// From products to logits for all rows of a warp: which rows and keys its scores belong to, and
// whether a tile is worked on as a whole (sm80_score_tiles.hpp) or a row at a time
// (sm80_scores.hpp).
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm80/block.hpp>
#include <tessera/kernels/attention/sm80/dropout.hpp>
#include <tessera/kernels/attention/sm80/score_tiles.hpp>
#include <tessera/kernels/attention/sm80/scores.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

/// Row `half` of row tile m that a thread holds, counted from the block's first.
template <class Traits>
__device__ __forceinline__ int row_of_thread(int thread, int m, int half) {
  return thread / 32 * Traits::rows_of_warp + m * 16 + half * 8 + thread % 32 / 4;
}

/// Row `row` of a block; `State` is a `block_state`.
template <class State>
__device__ __forceinline__ query_row query_at(const launch_args& args, const State& known,
                                              int row) {
  return query_of(args, known.range.kv_head, known.range.first_row + row);
}

/// Which weights of a warp's tile dropout keeps.
template <class Traits>
struct kept_weights {
  static constexpr bool drops = Traits::has(attention_feature::dropout);
  std::uint32_t bits[drops ? Traits::row_tiles : 1] = {};  ///< see kept_elements

  /// Element e of accumulator n of row tile m.
  __device__ __forceinline__ bool has(int m, int n, int e) const {
    return !drops || (bits[m] >> (4 * n + e) & 1u) != 0;
  }
};

template <class Traits, class State>
__device__ __forceinline__ kept_weights<Traits> draw_kept(const launch_args& args,
                                                          const State& known, int key0) {
  kept_weights<Traits> kept;
  if constexpr (kept_weights<Traits>::drops) {
    const auto thread = static_cast<int>(prim::cuda::thread_index());
#pragma unroll
    for (int m = 0; m < Traits::row_tiles; ++m) kept.bits[m] = 0xffffffffu;
    if (!args.call.dropout) return kept;
#pragma unroll
    for (int m = 0; m < Traits::row_tiles; ++m) {
      kept.bits[m] = kept_elements<Traits::key_tiles>(
          args.dropout, args.last_dropped, thread, static_cast<int>(known.range.seq.index),
          query_at(args, known, row_of_thread<Traits>(thread, m, 0)),
          query_at(args, known, row_of_thread<Traits>(thread, m, 1)), key0);
    }
  }
  return kept;
}

/// `State` is the `block_state`, which lies in shared memory.
template <class Traits, class Hooks, class State>
class score_changes {
  using modifiers = score_modifiers<Traits, Hooks>;
  using scores_type = prim::cuda::accumulator[Traits::row_tiles][Traits::key_tiles];
  static constexpr int row_tiles = Traits::row_tiles;

 public:
  __device__ __forceinline__ score_changes(const launch_args& args, const Hooks& hooks,
                                           const State& known)
      : args_(args), hooks_(hooks), known_(known) {}

  /// `looks`: mask tensor, segments or mask functor may hide something.
  __device__ __forceinline__ void apply(scores_type& scores, int key0, bool looks) const {
    const auto thread = static_cast<int>(prim::cuda::thread_index());
    if constexpr (!modifiers::calls_functors) {
      if (!modifiers::reads || (args_.wide && can_read(key0))) {
        change_tile(scores, thread, key0, looks);
        return;
      }
    }
    if constexpr (modifiers::calls_functors || modifiers::reads) {
      // One row at a time, each in the place of the first, so that the code is there once.
#pragma unroll 1
      for (int r = 0; r < 2 * row_tiles; ++r) {
        const int row = row_of_thread<Traits>(thread, r / 2, r % 2);
        modifiers::apply(args_, hooks_, scores[0], 0, position_of(row), key0, keys_of(row), looks);
        turn_rows(scores);
      }
    }
  }

 private:
  /// Of a row of the block.
  __device__ __forceinline__ position position_of(int row) const {
    const query_row at = query_at(args_, known_, row);
    return {known_.range.seq.index, at.head, at.query, 0, at.query + known_.visible.mask.offset};
  }
  /// Empty for a row that is not used.
  __device__ __forceinline__ prim::key_interval keys_of(int row) const {
    return row < known_.range.visible ? known_.visible.keys_of(query_at(args_, known_, row).query)
                                      : prim::key_interval{};
  }

  /// True if tensors have all keys of a tile.
  __device__ __forceinline__ bool can_read(int key0) const {
    const attention_kernel_args& call = args_.call;
    return key0 + Traits::block_kv <=
           (call.cu_seqlens_k != nullptr ? known_.range.seq.k_len : call.kv_len);
  }

  __device__ __forceinline__ void change_tile(scores_type& scores, int thread, int key0,
                                              bool looks) const {
    const bool inside =
        known_.keys.full_begin <= key0 && known_.keys.full_end >= key0 + Traits::block_kv;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
      // Row tiles are apart, so that what tensors say of one is not fetched while another's takes
      // registers.
      if (modifiers::reads && row_of_thread<Traits>(thread & ~31, m, 0) >= known_.range.visible) {
        break;
      }
      const auto row_at = [&](int half) {
        return position_of(min(row_of_thread<Traits>(thread, m, half), known_.range.visible - 1));
      };
      score_tile<Traits, decltype(row_at)> tile(args_, scores[m], row_at, thread, key0);
      if constexpr (modifiers::changes) {
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
      for (int one = 0; one < 2; ++one) {
        const float first = scores[0][n].at[one];
#pragma unroll
        for (int r = 0; r + 1 < 2 * row_tiles; ++r) {
          scores[r / 2][n].at[r % 2 * 2 + one] = scores[(r + 1) / 2][n].at[(r + 1) % 2 * 2 + one];
        }
        scores[row_tiles - 1][n].at[2 + one] = first;
      }
    }
  }

  const launch_args& args_;
  const Hooks& hooks_;
  const State& known_;
};

}  // namespace tessera::kernels::attention::sm80
