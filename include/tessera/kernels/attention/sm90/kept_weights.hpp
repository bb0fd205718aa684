// Dropout on a warpgroup's weights: which of a lane's are kept (common/dropout_bits.hpp draws
// them).
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/common/dropout_bits.hpp>
#include <tessera/kernels/attention/sm90/score_mod.hpp>
#include <tessera/kernels/attention/sm90/softmax.hpp>
#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/kernels/attention/sm90/work_tile.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>

namespace tessera::kernels::attention::sm90 {

/// What draws for the lane's rows begin with, once a work tile.
template <class Traits>
__device__ __forceinline__ void begin_draws(const launch_args& args,
                                            const planned_tile<Traits>& planned, int warpgroup,
                                            lane_tile<Traits>& lane) {
  if constexpr (Traits::begins_draws) {
    const int row = row_of_lane(static_cast<int>(prim::cuda::thread_index()), warpgroup);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      lane.rounds[half] = begin_rounds(args.dropout, query_of(args, planned.work, row + 8 * half));
    }
  }
}

/// Which weights of a lane dropout keeps: word w has those of 64 keys (`kept_elements`).
template <class Traits>
struct kept_weights {
  static constexpr int words = Traits::drops ? (Traits::block_kv + 63) / 64 : 1;
  std::uint32_t bits[words];

  __device__ __forceinline__ kept_weights() {
#pragma unroll
    for (std::uint32_t& word : bits) word = 0xffffffffu;
  }

  __device__ __forceinline__ void draw(const launch_args& args, const planned_tile<Traits>& planned,
                                       const lane_tile<Traits>& lane, int warpgroup, int tile) {
    if constexpr (Traits::drops) {
      if (!args.call.dropout) return;
      const int thread = static_cast<int>(prim::cuda::thread_index());
      const int key0 = tile * Traits::block_kv;
      bits[0] = draw_keys<(Traits::key_tiles < 8 ? Traits::key_tiles : 8)>(args, planned, lane,
                                                                           thread, warpgroup, key0);
      if constexpr (words > 1) {
        bits[1] =
            draw_keys<Traits::key_tiles - 8>(args, planned, lane, thread, warpgroup, key0 + 64);
      }
    }
  }

  /// Weights, which the row's sum has already, become 0 where dropout takes them.
  __device__ __forceinline__ void apply(lane_tile<Traits>& lane) const {
    if constexpr (Traits::drops) {
#pragma unroll
      for (int i = 0; i < Traits::block_kv / 2; ++i) {
        lane.scores[i] = (bits[i / 32] >> i % 32 & 1u) != 0 ? lane.scores[i] : 0.0f;
      }
    }
  }

 private:
  template <int KeyTiles>
  static __device__ __forceinline__ std::uint32_t draw_keys(const launch_args& args,
                                                            const planned_tile<Traits>& planned,
                                                            const lane_tile<Traits>& lane,
                                                            int thread, int warpgroup, int key0) {
    if constexpr (Traits::begins_draws) {
      return kept_elements<KeyTiles, (Traits::draws_late ? KeyTiles / 2 : 2)>(
          args.dropout, args.last_dropped, thread, planned.work.sequence, lane.rounds, key0);
    } else {
      const int row = row_of_lane(thread, warpgroup);
      return kept_elements<KeyTiles>(args.dropout, args.last_dropped, thread, planned.work.sequence,
                                     query_of(args, planned.work, row),
                                     query_of(args, planned.work, row + 8), key0);
    }
  }
};

/// `exponentiate` for the row's sums, and what dropout leaves of the weights. Of three warpgroups
/// both are one block, and calls without dropout have a text of their own, which looks at no bits.
template <class Traits, class Part>
__device__ __forceinline__ void exponentiate_kept(lane_tile<Part>& lane, const launch_args& args,
                                                  bool uncapped, const kept_weights<Traits>& kept) {
  if constexpr (!Traits::drops) {
    exponentiate(lane, args, uncapped, lane.sum);
  } else if (Traits::begins_draws || args.call.dropout) {
    exponentiate(lane, args, uncapped, lane.sum);
    kept.apply(lane);
  } else {
    exponentiate(lane, args, uncapped, lane.sum);
  }
}

}  // namespace tessera::kernels::attention::sm90
