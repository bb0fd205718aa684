// The registers of a warp while it works on tiles of keys: sums, scores and weights of its query
// rows, and the steps that turn one into the other.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/kernels/attention/sm80/block.hpp>
#include <tessera/kernels/attention/sm80/changes.hpp>
#include <tessera/kernels/attention/sm80/dropout.hpp>
#include <tessera/kernels/attention/sm80/finish.hpp>
#include <tessera/kernels/attention/sm80/not_finite.hpp>
#include <tessera/kernels/attention/sm80/scores.hpp>
#include <tessera/kernels/attention/sm80/split.hpp>
#include <tessera/kernels/attention/sm80/state.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/visible.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

/// The sums that a tile's products are added to: those of `old_sums` are still to be rescaled.
struct rescaled_sums {};
struct old_sums {};

/// Every array is indexed by constants once its loops are unrolled, and so stays in registers.
template <class Row, int Width, class Tokens, class Hooks>
class warp_rows {
  using traits = kernel_traits<Row, Width, Tokens>;
  using modifiers = score_modifiers<traits, Hooks>;
  using words = prim::cuda::half_words<typename traits::element>;  // of 16-bit rows
  using split = split_products<traits>;
  static constexpr int row_tiles = traits::row_tiles;

 public:
  /// The maximum of a row that has seen no key: finite, so that 2^(x - maximum) of a hidden x is 0
  /// and not NaN. Logits (times log2(e)) below it count as hidden.
  static constexpr float nothing_seen = -0x1p126f;

  using state = block_state<traits::config.mask, typename tile_chooser<traits, Hooks>::window_type>;

  /// `known` lies in shared memory, `q_tile` is the address of the block's queries there.
  __device__ __forceinline__ warp_rows(const launch_args& args, const Hooks& hooks,
                                       const state& known, std::uint32_t q_tile)
      : args_(args), hooks_(hooks), known_(known), q_tile_(q_tile) {
    if constexpr (traits::keeps_addresses) {
      k_lane_ = prim::cuda::computed_anew(traits::k_tile::lane_of_b(threadIdx.x % 32));
      v_lane_ = prim::cuda::computed_anew(traits::v_tile::lane_of_a(threadIdx.x % 32));
    }
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int d = 0; d < traits::v_tiles; ++d) out_[m][d] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        maximum_[m][half] = nothing_seen;
        denominator_[m][half] = 0.0f;
      }
    }
  }

  static __device__ __forceinline__ int lane() {
    return static_cast<int>(threadIdx.x % 32);
  }
  /// The warp's first row in the block's tile.
  static __device__ __forceinline__ int first_of_warp() {
    return static_cast<int>(threadIdx.x / 32) * traits::rows_of_warp;
  }
  __device__ __forceinline__ void load_queries() {
    if constexpr (traits::shape.threads.q_in_registers) {
#pragma unroll
      for (int step = 0; step < traits::dim_groups; ++step)
        load_query(queries_[step], threadIdx.x, step);
    }
  }

  /// scores_ = Q K^T of one tile. `before_the_end` is called a while before the products are there.
  template <class Action>
  __device__ __forceinline__ void multiply_queries(std::uint32_t keys,
                                                   const Action& before_the_end) {
    clear_scores(scores_);
    const unsigned thread = prim::cuda::thread_index();
    const std::uint32_t base =
        keys + (traits::keeps_addresses ? k_lane_ : traits::k_tile::lane_of_b(thread % 32));
    [[maybe_unused]] prim::cuda::accumulator small[traits::splits ? row_tiles : 1]
                                                  [traits::splits ? traits::key_tiles : 1];
    if constexpr (traits::splits) clear_scores(small);
#pragma unroll
    for (int step = 0; step < traits::dim_groups; ++step) {
      if (step + 2 == traits::dim_groups) before_the_end();
      prim::cuda::fragment_a q[row_tiles];
      if constexpr (traits::shape.threads.q_in_registers) {
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) q[m] = queries_[step][m];
      } else {
        load_query(q, thread, step);
      }
      if constexpr (traits::splits) {
        split::add_scores(scores_, small, q, base, step);
      } else {
#pragma unroll
        for (int g = 0; g < traits::key_groups; ++g) {
          prim::cuda::fragment_b2 k;
          prim::cuda::load_matrices(k.reg, traits::k_tile::step(base, g, step));
#pragma unroll
          for (int m = 0; m < row_tiles; ++m) {
            words::template multiply_add<0>(scores_[m][2 * g], q[m], k);
            words::template multiply_add<1>(scores_[m][2 * g + 1], q[m], k);
          }
        }
      }
    }
    if constexpr (traits::splits) {
      if (prim::cuda::any_of_warp(split::finish_scores(scores_, small))) {
        split::whole_scores(scores_, q_tile_, keys, args_.call.head_dim);
      }
    }
  }

  /// Row `half` of row tile m that a thread holds, counted from the block's first.
  static __device__ __forceinline__ int row_in_block(int thread, int m, int half) {
    return row_of_thread<traits>(thread, m, half);
  }

  /// `looks`: mask tensor, segments or mask functor may hide something.
  __device__ __forceinline__ void modify_scores(int key0, bool looks) {
    score_changes<traits, Hooks, state>(args_, hooks_, known_).apply(scores_, key0, looks);
  }

  /// New maxima where a row's has grown by more than `rescale_above`: sums stay relative to the old
  /// one otherwise, which is exact and saves rescalings. True if maxima moved: the sums of rows
  /// that rescale among products are still relative to the old ones.
  __device__ __forceinline__ bool update_maxima() {
    float found[row_tiles][2];
    bool grown = false;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = scores_[m][0].at[2 * half];
#pragma unroll
        for (int n = 0; n < traits::key_tiles; ++n) {
          most = fmaxf(most, fmaxf(scores_[m][n].at[2 * half], scores_[m][n].at[2 * half + 1]));
        }
        found[m][half] = most * args_.log2_scale;
        grown = grown || found[m][half] > maximum_[m][half] + args_.rescale_above;
      }
    }
    const bool moves = prim::cuda::any_of_warp(grown);
    if (moves) move_maxima(found);
    return moves;
  }

  /// Makes all sums relative to the maxima that have just moved.
  __device__ __forceinline__ void rescale() {
#pragma unroll
    for (int group = 0; group < traits::v_groups; ++group) {
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) rescale_columns(m, group);
    }
  }

  /// out_ += weights V. The exponentials of 16 keys are computed among the products of the 16
  /// before. `Sums` is `rescaled_sums`, or `old_sums` to do what `rescale` does among the products.
  template <class Sums>
  __device__ __forceinline__ void multiply_values(int key0, std::uint32_t values) {
    constexpr int steps = traits::v_groups;
    constexpr int parts = 2 * row_tiles;
    const kept_weights<traits> kept = draw_kept<traits>(args_, known_, key0);
    if constexpr (traits::splits) {
#pragma unroll
      for (int part = 0; part < traits::key_tiles * row_tiles; ++part) {
        weigh(part / traits::key_tiles, part % traits::key_tiles, kept);
      }
      split::add_values(out_, scores_, values);
    } else {
#pragma unroll
      for (int part = 0; part < parts; ++part) weigh(part / 2, part % 2, kept);
      const std::uint32_t base =
          values + (traits::keeps_addresses
                        ? v_lane_
                        : traits::v_tile::lane_of_a(prim::cuda::thread_index() % 32));
#pragma unroll
      for (int g = 0; g < traits::key_groups; ++g) {
        int done = 0;
#pragma unroll
        for (int d = 0; d < steps; ++d) {
          prim::cuda::fragment_b2 v;
          prim::cuda::load_matrices_transposed(v.reg, traits::v_tile::step(base, g, d));
#pragma unroll
          for (int m = 0; m < row_tiles; ++m) {
            if (std::is_same_v<Sums, old_sums> && g == 0) rescale_columns(m, d);
            words::template multiply_add<0>(out_[m][2 * d], weights_[g][m], v);
            words::template multiply_add<1>(out_[m][2 * d + 1], weights_[g][m], v);
          }
          if (g + 1 < traits::key_groups) {
#pragma unroll
            for (int part = 0; part < parts; ++part) {
              if (part >= done && part < (d + 1) * parts / steps) {
                weigh(part / 2, 2 * (g + 1) + part % 2, kept);
              }
            }
            done = (d + 1) * parts / steps;
          }
        }
      }
    }
  }

  /// Adds the products that `keep_finite` leaves out. Comes before `multiply_values`, which needs
  /// the registers.
  __device__ __forceinline__ void add_not_finite(int key0) {
    const auto thread = static_cast<int>(prim::cuda::thread_index());
    add_products_not_finite<traits>(
        args_.call, known_.v, key0, known_.keys.end, scores_, out_,
        [&](float x, int m, int half, int key) { return weight_of(x, thread, m, half, key); });
  }

  __device__ __forceinline__ prim::softmax_state state_of(int m, int half) const {
    const float maximum = maximum_[m][half];
    return {maximum == nothing_seen ? prim::minus_infinity : maximum * ln_2,
            prim::cuda::sum_of_quad(denominator_[m][half])};
  }

  /// True if one of the lane's sums is infinite or NaN.
  __device__ __forceinline__ bool has_not_finite() const {
    float zero[4] = {};
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int d = 0; d < traits::v_tiles; ++d) {
#pragma unroll
        for (int e = 0; e < 4; ++e) zero[e] = fmaf(out_[m][d].at[e], 0.0f, zero[e]);
      }
    }
    return (zero[0] + zero[1]) + (zero[2] + zero[3]) != 0.0f;
  }

  /// Sums of a row tile and eight columns of the values.
  __device__ __forceinline__ const prim::cuda::accumulator& sums(int m, int tile) const {
    return out_[m][tile];
  }

 private:
  /// The weight of the score `x` of row `half` of row tile m and a key, as `weigh` computes it.
  __device__ __forceinline__ float weight_of(float x, int thread, int m, int half, int key) const {
    const float weight = prim::cuda::exp2_fast(fmaf(x, args_.log2_scale, -maximum_[m][half]));
    if constexpr (modifiers::drops) {
      const bool keeps = keeps_weight(args_, static_cast<int>(known_.range.seq.index),
                                      query_at(args_, known_, row_in_block(thread, m, half)), key);
      return keeps ? weight : 0.0f;
    }
    return weight;
  }

  /// Turns the scores of eight keys into weights, packed for 16-bit rows.
  __device__ __forceinline__ void weigh(int m, int n, const kept_weights<traits>& kept) {
    const prim::cuda::accumulator& s = scores_[m][n];
    float p[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      p[e] = prim::cuda::exp2_fast(fmaf(s.at[e], args_.log2_scale, -maximum_[m][e / 2]));
    }
    denominator_[m][0] += p[0] + p[1];
    denominator_[m][1] += p[2] + p[3];
#pragma unroll
    for (int e = 0; e < 4; ++e) p[e] = kept.has(m, n, e) ? p[e] : 0.0f;
    if constexpr (traits::splits) {
#pragma unroll
      for (int e = 0; e < 4; ++e) scores_[m][n].at[e] = p[e];
    } else {
      weights_[n / 2][m].reg[n % 2 * 2] = words::pack(p[0], p[1]);
      weights_[n / 2][m].reg[n % 2 * 2 + 1] = words::pack(p[2], p[3]);
    }
  }

  template <int Rows, int Tiles>
  static __device__ __forceinline__ void clear_scores(
      prim::cuda::accumulator (&scores)[Rows][Tiles]) {
#pragma unroll
    for (int m = 0; m < Rows; ++m) {
#pragma unroll
      for (int n = 0; n < Tiles; ++n) scores[m][n] = {};
    }
  }

  __device__ __forceinline__ void move_maxima(const float (&found)[row_tiles][2]) {
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float maximum =
            fmaxf(prim::cuda::maximum_of_quad(found[m][half]) - args_.headroom, maximum_[m][half]);
        const float factor = prim::cuda::exp2_fast(maximum_[m][half] - maximum);
        maximum_[m][half] = maximum;
        denominator_[m][half] *= factor;
        if constexpr (traits::rescales_among_products) {
          factor_[m][half] = factor;
        } else {
#pragma unroll
          for (int d = 0; d < traits::v_tiles; ++d) {
            out_[m][d].at[2 * half] *= factor;
            out_[m][d].at[2 * half + 1] *= factor;
          }
        }
      }
    }
  }

  __device__ __forceinline__ void rescale_columns(int m, int group) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      out_[m][2 * group].at[e] *= factor_[m][e / 2];
      out_[m][2 * group + 1].at[e] *= factor_[m][e / 2];
    }
  }

  __device__ __forceinline__ void load_query(prim::cuda::fragment_a (&q)[row_tiles],
                                             unsigned thread, int step) {
    const std::uint32_t base = q_tile_ +
                               thread / 32 * traits::rows_of_warp * traits::q_tile::row_bytes +
                               traits::q_tile::lane_of_a(thread % 32);
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
      prim::cuda::load_matrices(q[m].reg, traits::q_tile::step(base, m, step));
    }
  }
  const launch_args& args_;
  const Hooks& hooks_;
  const state& known_;
  std::uint32_t q_tile_;
  std::uint32_t k_lane_ = 0, v_lane_ = 0;  ///< of traits::keeps_addresses: the lane's offsets

  prim::cuda::accumulator out_[row_tiles][traits::v_tiles];
  prim::cuda::accumulator scores_[row_tiles][traits::key_tiles];
  prim::cuda::fragment_a weights_[traits::key_groups][row_tiles];
  prim::cuda::fragment_a queries_[traits::shape.threads.q_in_registers ? traits::dim_groups : 1]
                                 [row_tiles];
  float maximum_[row_tiles]
                [2];  ///< in powers of 2; of the keys up to the last rescaling, less headroom
  float denominator_[row_tiles][2];
  float factor_[row_tiles][2];  ///< of the sums, where a maximum has just moved
};

}  // namespace tessera::kernels::attention::sm80
