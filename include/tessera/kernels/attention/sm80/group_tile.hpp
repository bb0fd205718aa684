// One query of each sequence, whose heads are a group of eight or fewer: keys are the rows of
// products and heads their columns, S^T = K Q^T and out^T = V^T P^T, so that no product has rows
// that nobody needs. What a warp holds, and what is done to it for a tile of keys; the loop is that
// of forward.hpp. The warps of a block have parts of its keys, which the first one adds up.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm80/queries.hpp>
#include <tessera/kernels/attention/sm80/softmax.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/warp_tile.hpp>
#include <tessera/kernels/attention/sm80/work_tile.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/code_words.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/transposed_tile.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

/// Lane 4 g + t has heads 2t and 2t + 1 (`e` 0 and 1), of keys those with the numbers g and g + 8
/// of 16, and likewise of columns of values, of 8 bits every second one of 32 (`column_of_row`).
/// All heads see the same keys.
template <class Traits, class State>
struct group_tile {
  static_assert(Traits::warps == 1 && Traits::row_tiles == 1 && !Traits::use_3xtf32);

  const launch_args& args;
  const State& block;  ///< in shared memory

  prim::cuda::accumulator out[Traits::v_groups];
  prim::cuda::accumulator scores[Traits::key_groups];
  prim::cuda::fragment_b2 q[Traits::dim_groups / 2];  ///< of two steps each
  float row_max[2];                                   ///< as in warp_tile
  float row_sum[2];                                   ///< of the lane's keys
  float log2_scales[2];                               ///< as in warp_tile

  __device__ __forceinline__ group_tile(const launch_args& launched, const State& known)
      : args(launched), block(known) {}

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  static __device__ __forceinline__ int first_row() { return 0; }
  __device__ __forceinline__ float log2_scale(int e) const {
    return Traits::codes ? log2_scales[e] : args.log2_scale;
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int d = 0; d < Traits::v_groups; ++d) out[d] = {};
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      row_max[e] = nothing_seen<Traits>;
      row_sum[e] = 0.0f;
    }
  }

  /// Values that no head sees are no part of products (`hide_keys`): sums are what they are.
  __device__ __forceinline__ bool has_not_finite() const {
    return false;
  }
};

/// The largest of lanes with the same heads, or their sum.
__device__ __forceinline__ float maximum_of_heads(float x) {
#pragma unroll
  for (int step = 4; step < prim::cuda::warp_size; step *= 2) {
    x = fmaxf(x, __shfl_xor_sync(prim::cuda::all_lanes, x, step));
  }
  return x;
}
__device__ __forceinline__ float sum_of_heads(float x) {
#pragma unroll
  for (int step = 4; step < prim::cuda::warp_size; step *= 2) {
    x += __shfl_xor_sync(prim::cuda::all_lanes, x, step);
  }
  return x;
}

template <class Traits, class State>
__device__ __forceinline__ void load_queries(group_tile<Traits, State>& warp,
                                             std::uint32_t q_tile) {
  const auto lane = static_cast<std::uint32_t>(warp.lane());
#pragma unroll
  for (int i = 0; i < Traits::dim_groups / 2; ++i) {
    prim::cuda::load_matrices(
        warp.q[i].reg,
        q_tile + Traits::q_tile::offset(lane % 8, static_cast<std::uint32_t>(4 * i) + lane / 8));
  }
}

/// What products with a lane's heads become powers of 2 by.
template <class Traits, class State>
__device__ __forceinline__ void load_log2_scales(group_tile<Traits, State>& warp) {
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    warp.log2_scales[e] = log2_scale_of_row(warp.args, warp.block, warp.lane() % 4 * 2 + e);
  }
}

/// The first operands of two products, by what ldmatrix brings of 16 rows and as many pairs of
/// columns: elements 0 and 1 of four, then 2 and 3 (`Apart`: 0 and 2, 1 and 3).
template <class Code, bool Apart>
__device__ __forceinline__ void widen_pairs(prim::cuda::fragment_a (&both)[2],
                                            const std::uint32_t (&pairs)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint2 halves = prim::cuda::halves_of_four<Code, Apart>(pairs[i]);
    // Of keys the columns of a product are those of a word; of values both halves are keys.
    if constexpr (Apart) {
      both[0].reg[i] = halves.x;
      both[1].reg[i] = halves.y;
    } else {
      both[i / 2].reg[i % 2] = halves.x;
      both[i / 2].reg[2 + i % 2] = halves.y;
    }
  }
}

/// Scores of one tile; steps are as those of gemm_qk.
template <class Traits, class State>
class group_qk {
  using words = prim::cuda::half_words<typename Traits::operand>;

 public:
  __device__ __forceinline__ group_qk(group_tile<Traits, State>& warp, std::uint32_t,
                                      std::uint32_t k_tile)
      : warp_(warp),
        base_(k_tile + Traits::k_tile::lane_of_a(static_cast<std::uint32_t>(warp.lane()))) {
#pragma unroll
    for (int n = 0; n < Traits::key_groups; ++n) warp_.scores[n] = {};
  }

  template <int First, int End, class Between>
  __device__ __forceinline__ void steps(const Between&) {
#pragma unroll
    for (int step = First; step < End; ++step) {
      if constexpr (Traits::codes) {
        if (step % 2 == 0) two_steps(step / 2);
      } else {
        one_step(step);
      }
    }
  }
  __device__ __forceinline__ void finish() {}

 private:
  /// 16 columns of 16 bits.
  __device__ __forceinline__ void one_step(int step) {
#pragma unroll
    for (int n = 0; n < Traits::key_groups; ++n) {
      prim::cuda::fragment_a k;
      prim::cuda::load_matrices(k.reg, Traits::k_tile::step(base_, n, step));
      if (step % 2 == 0) {
        words::template multiply_add<0>(warp_.scores[n], k, warp_.q[step / 2]);
      } else {
        words::template multiply_add<1>(warp_.scores[n], k, warp_.q[step / 2]);
      }
    }
  }
  /// 32 columns of 8 bits.
  __device__ __forceinline__ void two_steps(int both) {
#pragma unroll
    for (int n = 0; n < Traits::key_groups; ++n) {
      std::uint32_t pairs[4];
      prim::cuda::load_matrices(pairs, Traits::k_tile::step(base_, n, both));
      prim::cuda::fragment_a k[2];
      widen_pairs<typename Traits::code, false>(k, pairs);
      words::template multiply_add<0>(warp_.scores[n], k[0], warp_.q[both]);
      words::template multiply_add<1>(warp_.scores[n], k[1], warp_.q[both]);
    }
  }

  group_tile<Traits, State>& warp_;
  std::uint32_t base_;
};

/// Keys of a tile that the query does not see, those before its window and behind its last: their
/// scores are minus infinity, and values before the window 0, whatever they are.
template <class Traits, class State>
__device__ __forceinline__ void hide_keys(group_tile<Traits, State>& warp, int key0,
                                          std::uint32_t values) {
  using tile = typename Traits::v_tile;
  const int begin = warp.block.keys.full_begin - key0;
  const int end = warp.block.keys.full_end - key0;
#pragma unroll
  for (int n = 0; n < Traits::key_groups; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = n * 16 + i / 2 * 8 + warp.lane() / 4;
      if (key < begin || key >= end) warp.scores[n].at[i] = prim::minus_infinity;
    }
  }
  const int hidden = min(begin, Traits::block_kv) * tile::chunks;
  const std::uint32_t zeros[4] = {};
#pragma unroll 1
  for (int at = warp.lane(); at < hidden; at += prim::cuda::warp_size) {
    const auto row = static_cast<std::uint32_t>(at / tile::chunks);
    prim::cuda::store_shared_16(
        values + tile::offset(row, static_cast<std::uint32_t>(at % tile::chunks)), zeros);
  }
  __syncwarp();
}

/// As that of warp_tile.
template <class Traits, class State>
__device__ __forceinline__ bool update_row_max(group_tile<Traits, State>& warp) {
  float tile_max[2];
  bool grown = false;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    float most = warp.scores[0].at[e];
#pragma unroll
    for (int n = 0; n < Traits::key_groups; ++n) {
      most = fmaxf(most, fmaxf(warp.scores[n].at[e], warp.scores[n].at[2 + e]));
    }
    tile_max[e] = most * warp.log2_scale(e);
    grown = grown || tile_max[e] > warp.row_max[e] + warp.args.rescale_above;
  }
  if (!prim::cuda::any_of_warp(grown)) return false;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const float row_max =
        fmaxf(maximum_of_heads(tile_max[e]) - warp.args.headroom, warp.row_max[e]);
    const float rescale = prim::cuda::exp2_fast(warp.row_max[e] - row_max);
    warp.row_max[e] = row_max;
    warp.row_sum[e] *= rescale;
#pragma unroll
    for (int d = 0; d < Traits::v_groups; ++d) {
      warp.out[d].at[e] *= rescale;
      warp.out[d].at[2 + e] *= rescale;
    }
  }
  return true;
}

/// out += P V: P of 16 keys, transposed in registers, is the second operand.
template <bool, class Traits, class State>
__device__ __forceinline__ void gemm_pv(group_tile<Traits, State>& warp,
                                        const kept_weights<Traits>&, std::uint32_t v_tile) {
  using words = prim::cuda::half_words<typename Traits::operand>;
  const std::uint32_t base =
      v_tile + Traits::v_tile::lane_of_b(static_cast<std::uint32_t>(warp.lane()));
#pragma unroll
  for (int n = 0; n < Traits::key_groups; ++n) {
    float p[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      p[i] = prim::cuda::exp2_fast(
          fmaf(warp.scores[n].at[i], warp.log2_scale(i % 2), -warp.row_max[i % 2]));
    }
    warp.row_sum[0] += p[0] + p[2];
    warp.row_sum[1] += p[1] + p[3];
    prim::cuda::fragment_b2 weights{};
    weights.reg[0] = prim::cuda::transposed_tile(words::pack(p[0], p[1]));
    weights.reg[1] = prim::cuda::transposed_tile(words::pack(p[2], p[3]));
    if constexpr (Traits::codes) {
#pragma unroll
      for (int both = 0; both < Traits::v_groups / 2; ++both) {
        std::uint32_t pairs[4];
        prim::cuda::load_matrices_transposed(pairs, Traits::v_tile::step(base, n, both));
        prim::cuda::fragment_a v[2];
        widen_pairs<typename Traits::code, true>(v, pairs);
        words::template multiply_add<0>(warp.out[2 * both], v[0], weights);
        words::template multiply_add<0>(warp.out[2 * both + 1], v[1], weights);
      }
    } else {
#pragma unroll
      for (int d = 0; d < Traits::v_groups; ++d) {
        prim::cuda::fragment_a v;
        prim::cuda::load_matrices_transposed(v.reg, Traits::v_tile::step(base, n, d));
        words::template multiply_add<0>(warp.out[d], v, weights);
      }
    }
  }
}

/// Leaves the keys of this warp's part.
__device__ __forceinline__ void cut_to_part(const launch_args& args, key_range& keys) {
  const int tiles = keys.last_tile - keys.first_tile;
  cut_tiles(keys.first_tile, keys.last_tile, args.parts.quotient(tiles),
            static_cast<int>(args.parts.value), static_cast<int>(threadIdx.y));
}

/// What a lane holds, as 16 bytes each: maxima and denominators, then sums.
template <class Traits, class State>
__device__ __forceinline__ void leave_part(const group_tile<Traits, State>& warp,
                                           std::uint32_t to) {
  const auto store = [&to](float a, float b, float c, float d) {
    const std::uint32_t words[4] = {__float_as_uint(a), __float_as_uint(b), __float_as_uint(c),
                                    __float_as_uint(d)};
    prim::cuda::store_shared_16(to, words);
    to += prim::cuda::warp_size * 16;
  };
  store(warp.row_max[0], warp.row_max[1], warp.row_sum[0], warp.row_sum[1]);
#pragma unroll
  for (int d = 0; d < Traits::v_groups; ++d) {
    const float(&sums)[4] = warp.out[d].at;
    store(sums[0], sums[1], sums[2], sums[3]);
  }
}

/// Adds what another warp has left.
template <class Traits, class State>
__device__ __forceinline__ void add_part(group_tile<Traits, State>& warp, std::uint32_t from) {
  const auto load = [&from](float(&of)[4]) {
    std::uint32_t words[4];
    prim::cuda::load_shared_16(words, from);
#pragma unroll
    for (int i = 0; i < 4; ++i) of[i] = __uint_as_float(words[i]);
    from += prim::cuda::warp_size * 16;
  };
  float state[4];
  load(state);
  float own[2], other[2];  // what sums of heads are multiplied by
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const float row_max = fmaxf(warp.row_max[e], state[e]);
    own[e] = prim::cuda::exp2_fast(warp.row_max[e] - row_max);
    other[e] = prim::cuda::exp2_fast(state[e] - row_max);
    warp.row_max[e] = row_max;
    warp.row_sum[e] = own[e] * warp.row_sum[e] + other[e] * state[2 + e];
  }
#pragma unroll
  for (int d = 0; d < Traits::v_groups; ++d) {
    float sums[4];
    load(sums);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      warp.out[d].at[i] = own[i % 2] * warp.out[d].at[i] + other[i % 2] * sums[i];
    }
  }
}

/// The first warp of a block adds what the others hold to its own; true in that one. `own`: of this
/// warp's shared memory, which no copy is under way to; that of other warps lies beside it.
template <class Traits, class State>
__device__ __forceinline__ bool join_parts(group_tile<Traits, State>& warp, std::uint32_t own) {
  static_assert((Traits::v_groups + 1) * prim::cuda::warp_size * 16 <= Traits::shared_bytes);
  const auto parts = static_cast<int>(warp.args.parts.value);
  if (parts == 1) return true;
  const std::uint32_t at = own + static_cast<std::uint32_t>(warp.lane()) * 16;
  if (threadIdx.y > 0) {
    __syncwarp();
    leave_part(warp, at);
  }
  __syncthreads();
  if (threadIdx.y > 0) return false;
#pragma unroll 1
  for (int part = 1; part < parts; ++part) {
    add_part(warp, at + static_cast<std::uint32_t>(part * Traits::shared_bytes));
  }
  return true;
}

}  // namespace tessera::kernels::attention::sm80
