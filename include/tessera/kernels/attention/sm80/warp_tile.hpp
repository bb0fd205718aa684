// What a warp knows and holds in registers while it works on tiles of keys.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/common/hidden_logits.hpp>
#include <tessera/kernels/attention/sm80/key_source.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

/// The row maximum of a row that has seen no key.
template <class Traits>
inline constexpr float nothing_seen = nothing_seen_of(dtype_of<typename Traits::operand>::value);

/// The query rows of a warp: row tiles of 16, of which a lane has rows g and g + 8 (`half` 0 and
/// 1), see prim/cuda/matrix_unit.hpp. Every array is indexed by constants once its loops are
/// unrolled, and so stays in registers.
///
/// Tiles of the warp's rows and the references to what it knows lie in one object on purpose: so
/// nvcc 13.0 takes what it reads through them for changing while the arrays do, and makes one copy
/// of the code for tiles at the edge of a mask, not one for each answer to a question about the
/// call.
template <class Traits, class State>
struct warp_tile {
  static constexpr int row_tiles = Traits::row_tiles;

  const launch_args& args;
  const State& block;  ///< in shared memory

  /// Offsets of a lane in tiles of keys and values, where they are kept in registers.
  std::uint32_t k_lane = 0, v_lane = 0;

  prim::cuda::accumulator out[row_tiles][Traits::v_tiles];
  prim::cuda::accumulator scores[row_tiles][Traits::key_tiles];  ///< of f32 later P
  prim::cuda::fragment_a p[Traits::key_groups][row_tiles];       ///< of 16-bit elements
  prim::cuda::fragment_a q[Traits::shape.threads.q_in_registers ? Traits::dim_groups : 1]
                          [row_tiles];
  /// In powers of 2; of the keys up to the last time that it moved, less headroom.
  float row_max[row_tiles][2];
  float row_sum[row_tiles][2];
  /// Of elements of 8 bits: what products become powers of 2 by.
  float log2_scales[row_tiles][2];
  /// Of the tokens of a tile of 8-bit values, if they have some.
  lane_scales<Traits::block_kv> value_scales;
  /// What their sums are relative to, as `row_max`, see `update_value_max`.
  float value_max[row_tiles][2];
  float rescale[row_tiles][2];  ///< factor of `out`, where a maximum has just moved

  __device__ __forceinline__ warp_tile(const launch_args& launched, const State& known)
      : args(launched), block(known) {
    if constexpr (Traits::keeps_addresses) {
      k_lane = prim::cuda::computed_anew(Traits::k_tile::lane_of_b(threadIdx.x % 32));
      v_lane = prim::cuda::computed_anew(Traits::v_tile::lane_of_a(threadIdx.x % 32));
    }
  }

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  /// The warp's first row in the block's.
  static __device__ __forceinline__ int first_row() {
    return static_cast<int>(threadIdx.x / 32) * Traits::rows_of_warp;
  }

  __device__ __forceinline__ float log2_scale(int m, int half) const {
    return Traits::codes ? log2_scales[m][half] : args.log2_scale;
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int d = 0; d < Traits::v_tiles; ++d) out[m][d] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        row_max[m][half] = nothing_seen<Traits>;
        value_max[m][half] = nothing_seen<Traits>;
        row_sum[m][half] = 0.0f;
      }
    }
  }

  /// True if one of the lane's sums is infinite or NaN.
  __device__ __forceinline__ bool has_not_finite() const {
    float zero[4] = {};
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int d = 0; d < Traits::v_tiles; ++d) {
#pragma unroll
        for (int e = 0; e < 4; ++e) zero[e] = fmaf(out[m][d].at[e], 0.0f, zero[e]);
      }
    }
    return (zero[0] + zero[1]) + (zero[2] + zero[3]) != 0.0f;
  }
};

/// 16 columns of a warp's query rows from shared memory.
template <class Traits>
__device__ __forceinline__ void load_q(prim::cuda::fragment_a (&q)[Traits::row_tiles],
                                       std::uint32_t q_tile, unsigned thread, int step) {
  const std::uint32_t base = q_tile +
                             thread / 32 * Traits::rows_of_warp * Traits::q_tile::row_bytes +
                             Traits::q_tile::lane_of_a(thread % 32);
#pragma unroll
  for (int m = 0; m < Traits::row_tiles; ++m) {
    prim::cuda::load_matrices(q[m].reg, Traits::q_tile::step(base, m, step));
  }
}

}  // namespace tessera::kernels::attention::sm80
