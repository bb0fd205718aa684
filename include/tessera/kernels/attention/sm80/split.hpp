// The products of f32 rows: tf32 matrix units on split elements (prim/cuda/split_products.hpp).
// Sums of a tile of keys are added to the row's sums outside of the units, which round toward zero.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/split_products.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

template <class Traits>
struct split_products {
  static constexpr int row_tiles = Traits::row_tiles;
  using accumulator = prim::cuda::accumulator;
  using scores_type = accumulator[row_tiles][Traits::key_tiles];
  using out_type = accumulator[row_tiles][Traits::v_tiles];
  using part_a = prim::cuda::split_fragment<4>;

  /// scores += Q K^T for 8 columns of Q and K: products of high parts to `scores`, the others to
  /// `small`.
  static __device__ __forceinline__ void add_scores(scores_type& scores, scores_type& small,
                                                    const prim::cuda::fragment_a (&q)[row_tiles],
                                                    std::uint32_t keys, int step) {
    part_a rows[row_tiles];
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) rows[m] = prim::cuda::split_of(q[m].reg);
#pragma unroll
    for (int g = 0; g < Traits::key_groups; ++g) {
      prim::cuda::fragment_b2 whole;
      prim::cuda::load_matrices(whole.reg, Traits::k_tile::step(keys, g, step));
      const part_a k = prim::cuda::split_of(whole.reg);
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
        prim::cuda::multiply_add_tf32<0>(small[m][2 * g], rows[m].low, k.high);
        prim::cuda::multiply_add_tf32<2>(small[m][2 * g + 1], rows[m].low, k.high);
      }
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
        prim::cuda::multiply_add_tf32<0>(scores[m][2 * g], rows[m].high, k.high);
        prim::cuda::multiply_add_tf32<2>(scores[m][2 * g + 1], rows[m].high, k.high);
      }
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
        prim::cuda::multiply_add_tf32<0>(small[m][2 * g], rows[m].high, k.low);
        prim::cuda::multiply_add_tf32<2>(small[m][2 * g + 1], rows[m].high, k.low);
      }
    }
  }

  /// scores += small; true if one of the lane's is infinite or NaN, as those of infinite elements
  /// are, whose parts are NaN.
  static __device__ __forceinline__ bool finish_scores(scores_type& scores,
                                                       const scores_type& small) {
    float zero = 0.0f;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int n = 0; n < Traits::key_tiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          scores[m][n].at[e] += small[m][n].at[e];
          zero = fmaf(scores[m][n].at[e], 0.0f, zero);
        }
      }
    }
    return zero != 0.0f;
  }

  /// The same scores from whole elements, for tiles where some are not finite.
  static __device__ __forceinline__ void whole_scores(scores_type& scores, std::uint32_t q_tile,
                                                      std::uint32_t keys, int head_dim) {
    const unsigned thread = prim::cuda::thread_index();
    const unsigned row = thread / 32 * Traits::rows_of_warp + thread % 32 / 4;
    const unsigned column = thread % 4 * 2;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int n = 0; n < Traits::key_tiles; ++n) scores[m][n] = {};
    }
#pragma unroll 1
    for (unsigned d = 0; d < static_cast<unsigned>(head_dim); ++d) {
      float q[row_tiles][2];
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          q[m][half] = element<typename Traits::q_tile>(
              q_tile, row + static_cast<unsigned>(m * 16 + half * 8), d);
        }
      }
#pragma unroll
      for (int n = 0; n < Traits::key_tiles; ++n) {
#pragma unroll
        for (int one = 0; one < 2; ++one) {
          const float k = element<typename Traits::k_tile>(
              keys, column + static_cast<unsigned>(n * 8 + one), d);
#pragma unroll
          for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              float& score = scores[m][n].at[2 * half + one];
              score = fmaf(q[m][half], k, score);
            }
          }
        }
      }
    }
  }

  /// out += weights V of a tile. Keys 2t and 2t + 1 of eight are t and t + 4 of the product, so
  /// that the lanes have their weights already.
  static __device__ __forceinline__ void add_values(out_type& out, const scores_type& weights,
                                                    std::uint32_t values) {
    constexpr int at_once = row_tiles == 1 && Traits::v_tiles % 4 == 0 ? 4 : 2;
    const std::uint32_t even =
        values + Traits::v_tile::lane_of_single(prim::cuda::thread_index() % 32);
#pragma unroll
    for (int first = 0; first < Traits::v_tiles; first += at_once) {
      accumulator sums[row_tiles][at_once] = {};
      accumulator small[row_tiles][at_once] = {};
#pragma unroll
      for (int n = 0; n < Traits::key_tiles; ++n) {
        part_a rows[row_tiles];
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) {
          const accumulator& p = weights[m][n];
          const std::uint32_t whole[4] = {__float_as_uint(p.at[0]), __float_as_uint(p.at[2]),
                                          __float_as_uint(p.at[1]), __float_as_uint(p.at[3])};
          rows[m] = prim::cuda::split_of(whole);
        }
        prim::cuda::split_fragment<2> v[at_once];
#pragma unroll
        for (int i = 0; i < at_once; ++i) v[i] = value_pair(even, n, first + i);
#pragma unroll
        for (int i = 0; i < at_once * row_tiles; ++i) {
          prim::cuda::multiply_add_tf32<0>(small[i / at_once][i % at_once], rows[i / at_once].low,
                                           v[i % at_once].high);
        }
#pragma unroll
        for (int i = 0; i < at_once * row_tiles; ++i) {
          prim::cuda::multiply_add_tf32<0>(sums[i / at_once][i % at_once], rows[i / at_once].high,
                                           v[i % at_once].high);
        }
#pragma unroll
        for (int i = 0; i < at_once * row_tiles; ++i) {
          prim::cuda::multiply_add_tf32<0>(small[i / at_once][i % at_once], rows[i / at_once].high,
                                           v[i % at_once].low);
        }
      }
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            out[m][first + i].at[e] += sums[m][i].at[e] + small[m][i].at[e];
          }
        }
      }
    }
  }

 private:
  template <class Tile>
  static __device__ __forceinline__ float element(std::uint32_t tile, unsigned row,
                                                  unsigned column) {
    return __uint_as_float(
        prim::cuda::load_shared_4(tile + Tile::offset(row, column / 4) + column % 4 * 4));
  }

  /// Rows 8 n + 2t and 8 n + 2t + 1, column 8 d + g of the values.
  static __device__ __forceinline__ prim::cuda::split_fragment<2> value_pair(std::uint32_t even,
                                                                             int n, int d) {
    using tile = typename Traits::v_tile;
    const std::uint32_t at = even ^ static_cast<std::uint32_t>(d % 4 * 32);
    const auto down = static_cast<std::uint32_t>(d / 4 * 128 + n * 8 * tile::row_bytes);
    const std::uint32_t whole[2] = {prim::cuda::load_shared_4(at + down),
                                    prim::cuda::load_shared_4((at ^ 16u) + down + tile::row_bytes)};
    return prim::cuda::split_of(whole);
  }
};

}  // namespace tessera::kernels::attention::sm80
