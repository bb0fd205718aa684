// The two matrix products of a warp with a tile of keys and one of values: scores = Q K^T and
// out += P V, with 16-bit elements (prim/cuda/matrix_unit.hpp) or f32 ones as three products of
// tf32 parts (prim/cuda/split_products.hpp), whose sums of a tile are added to those of the row
// outside of the units, which round toward zero.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm80/operands.hpp>
#include <tessera/kernels/attention/sm80/softmax.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/split_products.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

/// The products of f32 elements.
template <class Traits>
struct gemm_3xtf32 {
  static constexpr int row_tiles = Traits::row_tiles;
  using accumulator = prim::cuda::accumulator;
  using scores_type = accumulator[row_tiles][Traits::key_tiles];
  using out_type = accumulator[row_tiles][Traits::v_tiles];
  using part_a = prim::cuda::split_fragment<4>;

  /// scores += Q K^T for 8 columns of Q and K: products of high parts to `scores`, the others to
  /// `small`.
  static __device__ __forceinline__ void qk_step(scores_type& scores, scores_type& small,
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
  static __device__ __forceinline__ bool add_small(scores_type& scores, const scores_type& small) {
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
  static __device__ __forceinline__ void qk_of_whole_elements(scores_type& scores,
                                                              std::uint32_t q_tile,
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
        for (int odd = 0; odd < 2; ++odd) {
          const float k = element<typename Traits::k_tile>(
              keys, column + static_cast<unsigned>(n * 8 + odd), d);
#pragma unroll
          for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              float& score = scores[m][n].at[2 * half + odd];
              score = fmaf(q[m][half], k, score);
            }
          }
        }
      }
    }
  }

  /// out += P V of a tile. Keys 2t and 2t + 1 of eight are t and t + 4 of the product, so
  /// that the lanes have their elements of P already.
  static __device__ __forceinline__ void pv(out_type& out, const scores_type& p,
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
          const accumulator& pair = p[m][n];
          const std::uint32_t whole[4] = {__float_as_uint(pair.at[0]), __float_as_uint(pair.at[2]),
                                          __float_as_uint(pair.at[1]), __float_as_uint(pair.at[3])};
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

/// scores = Q K^T of one tile. The addresses of the lane's operands, and what f32 sums apart; steps
/// are 32 bytes of a token each.
template <class Traits, class State>
class gemm_qk {
  using words = prim::cuda::half_words<typename Traits::operand>;
  using tf32 = gemm_3xtf32<Traits>;
  static constexpr int row_tiles = Traits::row_tiles;

 public:
  /// `q_tile` and `k_tile` are addresses of the tiles in shared memory.
  __device__ __forceinline__ gemm_qk(warp_tile<Traits, State>& warp, std::uint32_t q_tile,
                                     std::uint32_t k_tile)
      : warp_(warp), q_tile_(q_tile), k_tile_(k_tile) {
    clear(warp_.scores);
    thread_ = prim::cuda::thread_index();
    k_lane_ =
        k_tile + (Traits::keeps_addresses ? warp.k_lane : Traits::k_tile::lane_of_b(thread_ % 32));
    if constexpr (Traits::use_3xtf32) clear(small_);
  }

  /// `between(step)` is called after the products of each step.
  template <int First, int End, class Between>
  __device__ __forceinline__ void steps(const Between& between) {
#pragma unroll
    for (int step = First; step < End; ++step) {
      prim::cuda::fragment_a q[row_tiles];
      if constexpr (Traits::shape.threads.q_in_registers) {
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) q[m] = warp_.q[step][m];
      } else {
        load_q<Traits>(q, q_tile_, thread_, step);
      }
      if constexpr (Traits::use_3xtf32) {
        tf32::qk_step(warp_.scores, small_, q, k_lane_, step);
      } else {
#pragma unroll
        for (int g = 0; g < Traits::key_groups; ++g) {
          const auto k = key_operand<Traits>(pairs_[Traits::codes ? g : 0], k_lane_, g, step);
#pragma unroll
          for (int m = 0; m < row_tiles; ++m) {
            words::template multiply_add<0>(warp_.scores[m][2 * g], q[m], k);
            words::template multiply_add<1>(warp_.scores[m][2 * g + 1], q[m], k);
          }
        }
      }
      between(step);
    }
  }

  /// After all steps.
  __device__ __forceinline__ void finish() {
    if constexpr (Traits::use_3xtf32) {
      if (prim::cuda::any_of_warp(tf32::add_small(warp_.scores, small_))) {
        tf32::qk_of_whole_elements(warp_.scores, q_tile_, k_tile_, warp_.args.call.head_dim);
      }
    }
  }

 private:
  template <int Rows, int Tiles>
  static __device__ __forceinline__ void clear(prim::cuda::accumulator (&scores)[Rows][Tiles]) {
#pragma unroll
    for (int m = 0; m < Rows; ++m) {
#pragma unroll
      for (int n = 0; n < Tiles; ++n) scores[m][n] = {};
    }
  }

  warp_tile<Traits, State>& warp_;
  std::uint32_t q_tile_;
  std::uint32_t k_tile_;
  std::uint32_t k_lane_;
  unsigned thread_;
  std::uint32_t pairs_[Traits::codes ? Traits::key_groups : 1][4];  ///< see key_operand
  prim::cuda::accumulator small_[Traits::use_3xtf32 ? row_tiles : 1]
                                [Traits::use_3xtf32 ? Traits::key_tiles : 1];
};

/// Products with keys of 8 bits times the scales of their tokens.
template <class Traits, class State>
__device__ __forceinline__ void scale_scores(warp_tile<Traits, State>& warp,
                                             const lane_scales<Traits::block_kv>& scales) {
#pragma unroll
  for (int n = 0; n < Traits::key_tiles; ++n) {
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      const float scale = scales.of(n * 8 + warp.lane() % 4 * 2 + odd);
#pragma unroll
      for (int m = 0; m < Traits::row_tiles; ++m) {
        warp.scores[m][n].at[odd] *= scale;
        warp.scores[m][n].at[2 + odd] *= scale;
      }
    }
  }
}

/// out += P V of one tile at `v_tile` in shared memory. P of 16 keys is computed from their scores
/// among the products of the 16 keys before. `Rescales`: the sums are still relative to the old
/// maxima, and what `rescale_out` does is done among the products.
template <bool Rescales, class Traits, class State>
__device__ __forceinline__ void gemm_pv(warp_tile<Traits, State>& warp,
                                        const kept_weights<Traits>& kept, std::uint32_t v_tile) {
  using words = prim::cuda::half_words<typename Traits::operand>;
  constexpr int row_tiles = Traits::row_tiles;
  constexpr int steps = Traits::v_groups;
  constexpr int parts = 2 * row_tiles;  // of P of 16 keys
  if constexpr (Traits::use_3xtf32) {
#pragma unroll
    for (int part = 0; part < Traits::key_tiles * row_tiles; ++part) {
      exponentiate(warp, kept, part / Traits::key_tiles, part % Traits::key_tiles);
    }
    gemm_3xtf32<Traits>::pv(warp.out, warp.scores, v_tile);
  } else {
#pragma unroll
    for (int part = 0; part < parts; ++part) exponentiate(warp, kept, part / 2, part % 2);
    const std::uint32_t base =
        v_tile + (Traits::keeps_addresses
                      ? warp.v_lane
                      : Traits::v_tile::lane_of_a(prim::cuda::thread_index() % 32));
#pragma unroll
    for (int g = 0; g < Traits::key_groups; ++g) {
      int done = 0;
      std::uint32_t pairs[4];
#pragma unroll
      for (int d = 0; d < steps; ++d) {
        const auto v = value_operand<Traits>(pairs, base, g, d);
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) {
          if (Rescales && g == 0) rescale_columns(warp, m, d);
          words::template multiply_add<0>(warp.out[m][2 * d], warp.p[g][m], v);
          words::template multiply_add<1>(warp.out[m][2 * d + 1], warp.p[g][m], v);
        }
        if (g + 1 < Traits::key_groups) {
#pragma unroll
          for (int part = 0; part < parts; ++part) {
            if (part >= done && part < (d + 1) * parts / steps) {
              exponentiate(warp, kept, part / 2, 2 * (g + 1) + part % 2);
            }
          }
          done = (d + 1) * parts / steps;
        }
      }
    }
  }
}

/// Adds to a warp's sums the products of P and the values of one tile that are infinite or NaN,
/// which lie at 0 in the tile then, for the rows that see them. Where P is 0 nothing is added, as
/// if the key were hidden. Comes before `gemm_pv`, which needs the registers.
template <class Traits, class State>
__device__ __forceinline__ void add_not_finite(warp_tile<Traits, State>& warp, int key0) {
  const attention_kernel_args& call = warp.args.call;
  const auto thread = static_cast<int>(prim::cuda::thread_index());
  const int keys = min(Traits::block_kv, warp.block.keys.end - key0);
  const auto lane = static_cast<int>(prim::cuda::thread_index() % prim::cuda::warp_size);
#pragma unroll 1
  for (int j = 0; j < keys; ++j) {
    float weight[Traits::row_tiles][2];
#pragma unroll
    for (int m = 0; m < Traits::row_tiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float mine = prim::minus_infinity;
#pragma unroll
        for (int n = 0; n < Traits::key_tiles; ++n) {
          const float even = warp.scores[m][n].at[2 * half];
          const float odd = warp.scores[m][n].at[2 * half + 1];
          mine = n == j / 8 ? (j % 2 == 0 ? even : odd) : mine;
        }
        mine = __shfl_sync(prim::cuda::all_lanes, mine, (lane & ~3) | (j % 8 / 2));
        weight[m][half] = p_of(warp, mine, thread, m, half, key0 + j);
      }
    }
    const auto* row = warp.block.v.row(Traits::places_of(call, call.v_strides.row), key0 + j);
    float scale = 1.0f;
    if constexpr (takes_codes(Traits::config)) scale = warp.block.v.scale_of(key0 + j);
#pragma unroll
    for (int d = 0; d < Traits::v_tiles; ++d) {
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const int column = column_of_sum<Traits>(lane, d, odd);
        const float value =
            column < call.v_head_dim ? value_at<Traits>(call, row, column) * scale : 0.0f;
        if (isfinite(value)) continue;
#pragma unroll
        for (int m = 0; m < Traits::row_tiles; ++m) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float& sum = warp.out[m][d].at[2 * half + odd];
            sum = weight[m][half] != 0.0f ? fmaf(weight[m][half], value, sum) : sum;
          }
        }
      }
    }
  }
}

}  // namespace tessera::kernels::attention::sm80
