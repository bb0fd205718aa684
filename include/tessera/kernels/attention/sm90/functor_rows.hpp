// What functors know of a lane's rows, and those that add factor * distance to the logits of a row
// (ALiBi), for an operation a score: products take what lies between their key and the lane's
// first, which the compiler knows; what the first key's distance adds is one number of a row and a
// tile of keys, by which the reference maximum is moved instead.
#pragma once

#include <tessera/kernels/attention/sm90/kept_weights.hpp>
#include <tessera/kernels/attention/sm90/score_mod.hpp>
#include <tessera/kernels/attention/sm90/softmax.hpp>
#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>

namespace tessera::kernels::attention::sm90 {

/// Where the lane's rows stand, and their biases, what functors say of them, what draws begin with:
/// once a work tile, as in the loop each tile of keys would wait for it.
template <class Traits>
__device__ __forceinline__ void read_rows(const launch_args& args,
                                          const typename Traits::hooks& hooks,
                                          const planned_tile<Traits>& planned, int warpgroup,
                                          lane_tile<Traits>& lane) {
  begin_draws(args, planned, warpgroup, lane);
  score_mod<Traits>(args, hooks, planned, lane, warpgroup).begin();
  if constexpr (Traits::calls_functors || Traits::adds_distances) {
    const int thread = static_cast<int>(prim::cuda::thread_index());
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Always a row that is used.
      const int row = min(row_of_lane(thread, warpgroup) + 8 * half, planned.work.used - 1);
      const position at = position_of(args, planned, row);
      if constexpr (Traits::adds_distances) {
        lane.factor[half] = static_cast<float>(hooks.logits.distance_factor(at)) * prim::log2_e;
        lane.stands[half] = static_cast<int>(at.query_position) - thread % 4 * 2;
      } else {
        lane.rows[half] = at;
      }
    }
  }
}

/// What scores of a tile of keys lack of their logits.
template <class Traits>
__device__ __forceinline__ void find_lacks(int tile, lane_tile<Traits>& lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int distance = lane.stands[half] - tile * Traits::block_kv;
    lane.lacks[half] = lane.factor[half] * static_cast<float>(distance);
  }
}

/// Products with a tile of keys become scores, which lack `lane.lacks` of their logits.
template <class Traits>
__device__ __forceinline__ void add_distances(const launch_args& args, lane_tile<Traits>& lane) {
  const float of_key[2] = {lane.factor[0] * args.inverse_scale,
                           lane.factor[1] * args.inverse_scale};
#pragma unroll
  for (int i = 0; i < Traits::block_kv / 2; ++i) {
    const auto ahead = static_cast<float>(lane_keys::ahead(i / 4 * 2 + i % 2));
    lane.scores[i] = fmaf(of_key[half_of(i)], -ahead, lane.scores[i]);
  }
}

/// By how much the references of a lane's rows may lie apart, in powers of 2, if both are to have
/// the larger: small weights of f16 lose bits.
constexpr float farthest_pair_of(dtype type) {
  return type == dtype::f16 ? 4.0f : 24.0f;
}

/// After the first reference of rows: both of a lane's get the larger, if all lanes of the warp
/// can. A row that is not used, or has seen nothing, lies too far from one that has.
template <class Traits>
__device__ __forceinline__ void pair_rows(lane_tile<Traits>& lane) {
  if constexpr (Traits::pairs_rows) {
    const float first = reference_of(lane, 0);
    const float second = reference_of(lane, 1);
    const bool can = lane.factor[0] == lane.factor[1] &&
                     fabsf(first - second) <= farthest_pair_of(Traits::config.type);
    lane.paired = !prim::cuda::any_of_warp(!can);
    if (!lane.paired) return;
    const float larger = fmaxf(first, second);
    lane.reference[0] = larger + lane.lacks[0];
    lane.reference[1] = larger + lane.lacks[1];
  }
}

}  // namespace tessera::kernels::attention::sm90
