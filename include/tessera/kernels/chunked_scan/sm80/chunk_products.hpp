// Operands of a chunk's products: weights of pairs of tokens, and values.
#pragma once

#include <cstdint>

#include <tessera/kernels/chunked_scan/sm80/chunk_channels.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_memory.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_answers.hpp>
#include <tessera/kernels/recurrence/sm80/warp_state.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

/// P to shared memory, times 2^`log2_scale` where heads decay: a warp has every, or every second,
/// block of 16 tokens of 16 rows. With a bonus tokens have themselves by `own`; where columns
/// decay not at all, and their products go there.
template <class Element, class Shape, chunk_decay Decay>
__device__ __forceinline__ void make_weights(chunk_memory<Shape, Decay>& shared,
                                             const head_decays& decays, std::uint32_t q,
                                             std::uint32_t k, int warp, float log2_scale = 0.0f) {
  using words = prim::cuda::half_words<Element>;
  constexpr int sharers = Shape::warps / 4;
  const auto lane = prim::cuda::thread_index() % 32;
  const int block = warp % 4;
  prim::cuda::accumulator scores[8 / sharers] = {};
  recurrence::sm80::multiply_rows<Element, Shape, sharers>(scores, q, k, block, warp / 4);
  const std::uint32_t weights = prim::cuda::shared_address(shared.weights);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = block * 16 + static_cast<int>(lane) / 4 + half * 8;
    const float of_row = Decay == chunk_decay::heads ? decays.sums[row] + log2_scale : 0.0f;
    float most = 0.0f;
#pragma unroll
    for (int i = 0; i < 8 / sharers; ++i) {
      const int tile = (i / 2 * sharers + warp / 4) * 2 + i % 2;
      if (tile / 2 > block) break;
      const int token = tile * 8 + static_cast<int>(lane) % 4 * 2;
      float* const weight = scores[i].at + 2 * half;
      if constexpr (Decay == chunk_decay::heads) {
        const float2 sums = *reinterpret_cast<const float2*>(decays.sums + token);
        weight[0] *= prim::cuda::exp2_fast(of_row - sums.x);
        weight[1] *= prim::cuda::exp2_fast(of_row - sums.y);
      }
      if (tile / 2 == block) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          if (token + j > row) weight[j] = 0.0f;
          if (reads_before(Decay) && token + j == row) {
            float& own = shared.of_channels.own[row];
            const float product = weight[j];
            weight[j] = decays_by_column(Decay) ? 0.0f : own;
            if (decays_by_column(Decay)) own = product;
          }
        }
      }
      most = fmaxf(most, fmaxf(fabsf(weight[0]), fabsf(weight[1])));
    }
    float factor = 1.0f;
    if constexpr (recurrence::sm80::range_is_short<Element>) {
      static_assert(sharers == 1);
      const auto scale = recurrence::sm80::range_scale::of(recurrence::sm80::max_of_quad(most));
      factor = scale.factor;
      if (lane % 4 == 0) {
        shared.of_weights.factor[row] = scale.factor;
        shared.of_weights.inverse[row] = scale.inverse;
      }
    }
#pragma unroll
    for (int i = 0; i < 8 / sharers; ++i) {
      const int tile = (i / 2 * sharers + warp / 4) * 2 + i % 2;
      if (tile / 2 > block) break;
      const float* const weight = scores[i].at + 2 * half;
      prim::cuda::store_shared_4(weights +
                                     Shape::weight_rows::offset(static_cast<std::uint32_t>(row),
                                                                static_cast<std::uint32_t>(tile)) +
                                     lane % 4 * 4,
                                 words::pack(factor * weight[0], factor * weight[1]));
    }
  }
}

/// The bonus of the channels that decay, `count` from `first` on; that of others is 0.
template <class Shape, chunk_decay Decay>
__device__ __forceinline__ void load_bonus(chunk_memory<Shape, Decay>& shared,
                                           const chunked_scan_rows& u, std::int64_t head, int first,
                                           int count) {
  for (int c = static_cast<int>(threadIdx.x); c < decaying_channels<Shape, Decay>;
       c += Shape::threads) {
    shared.of_channels.u[c] =
        c < count ? prim::cuda::number_at(u.data, u.type, head * u.head + first + c) : 0.0f;
  }
}

/// q . (u k) of each token, times `scale`, which it has of itself; 0 outside of the segment.
template <class Element, class Shape, chunk_decay Decay>
__device__ __forceinline__ void make_bonus(chunk_memory<Shape, Decay>& shared,
                                           const chunk_segment& segment, float scale, int warp) {
  using words = prim::cuda::half_words<Element>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 8 / Shape::warps * 2; ++half) {
    const int row = (half / 2 * Shape::warps + warp) * 8 + half % 2 * 4 + lane / 8;
    float sum = 0.0f;
#pragma unroll 4
    for (int c = lane % 8 * 2; c < Shape::keys; c += 16) {
      const std::uint32_t at = Shape::key_rows::offset(static_cast<std::uint32_t>(row),
                                                       static_cast<std::uint32_t>(c / 8)) +
                               static_cast<std::uint32_t>(c % 8 * 2);
      const auto q = *reinterpret_cast<const std::uint32_t*>(shared.q[0] + at);
      const auto k = *reinterpret_cast<const std::uint32_t*>(shared.k[0] + at);
      const float2 u = *reinterpret_cast<const float2*>(shared.of_channels.u + c);
      sum = fmaf(words::unpack(static_cast<std::uint16_t>(q)) * u.x,
                 words::unpack(static_cast<std::uint16_t>(k)), sum);
      sum = fmaf(words::unpack(static_cast<std::uint16_t>(q >> 16)) * u.y,
                 words::unpack(static_cast<std::uint16_t>(k >> 16)), sum);
    }
    sum = prim::cuda::sum_of_quad(sum);
    sum += __shfl_xor_sync(prim::cuda::all_lanes, sum, 4);
    if (lane % 8 != 0) continue;
    shared.of_channels.own[row] = row >= segment.first && row < segment.end ? scale * sum : 0.0f;
  }
}

/// Values that are not finite, of 16 tokens from `token` on and the columns of a tile, become 0,
/// which earlier tokens alone may see; the first such token of a column is noted.
template <class Element, class Shape>
__device__ __forceinline__ bool remove_not_finite(prim::cuda::fragment_b2& values, int* first,
                                                  int token) {
  bool any = false;
#pragma unroll
  for (const std::uint32_t word : values.reg) {
    any = any || prim::cuda::any_not_finite<Element>(word);
  }
  if (!prim::cuda::any_of_warp(any)) return false;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t word = values.reg[i];
    if (!prim::cuda::any_not_finite<Element>(word)) continue;
    const bool upper = !prim::cuda::any_not_finite<Element>(word & 0xffffu);
    atomicMin(first + i / 2 * 8 + lane / 4, token + i % 2 * 8 + lane % 4 * 2 + (upper ? 1 : 0));
    values.reg[i] = prim::cuda::finite_only<Element>(word);
  }
  return true;
}

/// Answers of columns that decay.
template <class Element, class Shape>
__device__ __forceinline__ void decay_answers(
    recurrence::sm80::chunk_answers<Element, Shape>& answers,
    const float (&factors)[Shape::tokens][Shape::columns + 8], int warp) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < 16 * Shape::tiles; ++i) {
    const int tile = i % (2 * Shape::tiles), half = i / (2 * Shape::tiles) % 2;
    const int block = i / (4 * Shape::tiles);
    const float2 factor = *reinterpret_cast<const float2*>(
        &factors[block * 16 + half * 8 + lane / 4]
                [(warp * 2 * Shape::tiles + tile) * 8 + lane % 4 * 2]);
    answers.at[block][tile].at[2 * half] *= factor.x;
    answers.at[block][tile].at[2 * half + 1] *= factor.y;
  }
}

/// What tokens have of their own values through the bonus of each column, times `scale`: values as
/// they come lie in `values`.
template <class Element, class Shape>
__device__ __forceinline__ void add_own(recurrence::sm80::chunk_answers<Element, Shape>& answers,
                                        const unsigned char* values, const float* own,
                                        const float* bonus, float scale, int warp) {
  using words = prim::cuda::half_words<Element>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < 16 * Shape::tiles; ++i) {
    const int tile = i % (2 * Shape::tiles), half = i / (2 * Shape::tiles) % 2;
    const int block = i / (4 * Shape::tiles);
    const int row = block * 16 + half * 8 + lane / 4;
    const int column = (warp * 2 * Shape::tiles + tile) * 8 + lane % 4 * 2;
    const std::uint32_t at = Shape::value_rows::offset(static_cast<std::uint32_t>(row),
                                                       static_cast<std::uint32_t>(column / 8)) +
                             static_cast<std::uint32_t>(column % 8 * 2);
    const auto word = *reinterpret_cast<const std::uint32_t*>(values + at);
    const float2 of_columns = *reinterpret_cast<const float2*>(bonus + column);
    const float weight = scale * own[row];
    float* const answer = answers.at[block][tile].at + 2 * half;
    answer[0] =
        fmaf(weight * of_columns.x, words::unpack(static_cast<std::uint16_t>(word)), answer[0]);
    answer[1] = fmaf(weight * of_columns.y, words::unpack(static_cast<std::uint16_t>(word >> 16)),
                     answer[1]);
  }
}

/// Tokens of other segments are what they are without what is not finite.
__device__ __forceinline__ void keep_tokens(prim::cuda::fragment_b2& all,
                                            const prim::cuda::fragment_b2& finite,
                                            const chunk_segment& segment, int token) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int own = token + i % 2 * 8 + lane % 4 * 2;
    std::uint32_t mask = 0;
    if (own >= segment.first && own < segment.end) mask |= 0xffffu;
    if (own + 1 >= segment.first && own + 1 < segment.end) mask |= 0xffff0000u;
    all.reg[i] = (all.reg[i] & mask) | (finite.reg[i] & ~mask);
  }
}

/// A token's values times what is left of them at the end of the chunk, as operand A.
template <class Element>
__device__ __forceinline__ prim::cuda::fragment_a scaled_values(
    const prim::cuda::fragment_b2& values, const float* rest) {
  using words = prim::cuda::half_words<Element>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  prim::cuda::fragment_b2 scaled;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 factor = *reinterpret_cast<const float2*>(rest + i % 2 * 8 + lane % 4 * 2);
    const std::uint32_t word = values.reg[i];
    scaled.reg[i] = words::pack(words::unpack(static_cast<std::uint16_t>(word)) * factor.x,
                                words::unpack(static_cast<std::uint16_t>(word >> 16)) * factor.y);
  }
  return recurrence::sm80::transposed(scaled);
}

}  // namespace tessera::kernels::chunked_scan::sm80
