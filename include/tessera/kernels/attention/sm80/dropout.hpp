// Which weights of a warp's tile dropout keeps.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/common/dropout_bits.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/work_tile.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

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
                                                          const State& block, int key0) {
  kept_weights<Traits> kept;
  if constexpr (kept_weights<Traits>::drops) {
    const auto thread = static_cast<int>(prim::cuda::thread_index());
#pragma unroll
    for (int m = 0; m < Traits::row_tiles; ++m) kept.bits[m] = 0xffffffffu;
    if (!args.call.dropout) return kept;
#pragma unroll
    for (int m = 0; m < Traits::row_tiles; ++m) {
      kept.bits[m] = kept_elements<Traits::key_tiles>(
          args.dropout, args.last_dropped, thread, static_cast<int>(block.work.seq.index),
          query_at(args, block, row_of_thread<Traits>(thread, m, 0)),
          query_at(args, block, row_of_thread<Traits>(thread, m, 1)), key0);
    }
  }
  return kept;
}

}  // namespace tessera::kernels::attention::sm80
