// Gradients of decays of a chunk as products on the matrix unit. With h half of the sum of a
// channel's log decays over the chunk, P_sj = v_j . d_out_s for j < s,
//
//   Q_s = q_s exp(G_s - h)      K_j = k_j exp(h - G_j)      W_sj = Q_s P_sj K_j
//   sum over j of W_sj = Q_s (P K)_s      sum over s of W_sj = K_j (P^T Q)_j
//
// Q, K and P are rounded, but both sums have the same W of them, so that these cancel to the
// rounding of f32. With a bonus Q_s has the decays up to the token before s.
#pragma once

#include <cstdint>

#include <tessera/kernels/chunked_scan/sm80/chunk_decay_memory.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_decay_pairs.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_answers.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

/// `Before`: queries read the state in front of their token.
template <class Element, class Shape, bool Before>
class decay_products : protected decay_pairs<Element, Shape, Before> {
  using base = decay_pairs<Element, Shape, Before>;
  using value_rows = typename Shape::value_rows;
  using weight_rows = typename Shape::weight_rows;

 protected:
  using base::base;
  using base::call_;
  using base::channel_;
  using base::count_;
  using base::is_second_;
  using base::shared_;
  using answers_of = recurrence::sm80::chunk_answers<Element, Shape>;
  using words = prim::cuda::half_words<Element>;

  /// Scores of the block of 16 tokens of a warp to P, and those of tokens with themselves.
  __device__ __forceinline__ void put_weights(const prim::cuda::accumulator (&scores)[8],
                                              int block) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::uint32_t weights = prim::cuda::shared_address(shared_.of_products.weights);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (i / 4 > block) break;
      const int row = block * 16 + i % 2 * 8 + lane / 4, token = i / 2 * 8 + lane % 4 * 2;
      const float* const x = scores[i / 2].at + i % 2 * 2;
      if (token == row) shared_.of_products.own[row] = x[0];
      if (token + 1 == row) shared_.of_products.own[row] = x[1];
      prim::cuda::store_shared_4(
          weights +
              weight_rows::offset(static_cast<std::uint32_t>(row),
                                  static_cast<std::uint32_t>(i / 2)) +
              static_cast<std::uint32_t>(lane % 4 * 4),
          words::pack(token < row ? x[0] : 0.0f, token + 1 < row ? x[1] : 0.0f));
    }
  }

  /// Q and K in the places of q and k, of the thread's channel and half of the tokens; what S and D
  /// are multiplied by, D with `behind` that is left behind the chunk.
  __device__ __forceinline__ void scale_rows(float behind) const {
    auto& of = shared_.of_products;
    const float first = of.halves[0][channel_], both = first + of.halves[1][channel_];
    const float middle = 0.5f * both;
    float sum = is_second_ ? first : 0.0f, bonus = 0.0f;
    const int begin = is_second_ ? Shape::tokens / 2 : 0;
#pragma unroll 8
    for (int t = begin; t < begin + Shape::tokens / 2; ++t) {
      const float q = base::query(t), k = base::key(t), before = sum;
      sum += shared_.decays[t][channel_];
      if (Before) bonus = fmaf(of.own[t] * q, k, bonus);
      put(shared_.q, t, q * prim::cuda::exp2_fast((Before ? before : sum) - middle));
      put(shared_.k, t, k * prim::cuda::exp2_fast(middle - sum));
    }
    if (is_second_) {
      of.behind[channel_] = behind * prim::cuda::exp2_fast(both - middle);
    } else {
      of.front[channel_] = prim::cuda::exp2_fast(middle);
    }
    if (Before) of.bonus[is_second_ ? 1 : 0][channel_] = bonus;
  }

  /// What states have for d_out and v to the sums of both, with those of pairs; to `all_keys` what
  /// the tokens of the chunk have of D.
  __device__ __forceinline__ void multiply_pairs(answers_of& queries, answers_of& keys,
                                                 int warp) const {
    const auto lane = prim::cuda::thread_index() % 32;
    multiply_columns(queries, shared_.of_products.front, warp);
    multiply_columns(keys, shared_.of_products.behind, warp);
    sum_keys(keys, warp);
    const std::uint32_t weights = prim::cuda::shared_address(shared_.of_products.weights);
    const std::uint32_t q = value_rows::step(
        prim::cuda::shared_address(shared_.q) + value_rows::lane_of_a(lane), 0, warp);
    const std::uint32_t k = value_rows::step(
        prim::cuda::shared_address(shared_.k) + value_rows::lane_of_a(lane), 0, warp);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      prim::cuda::fragment_b2 of_q[1], of_k[1];
      prim::cuda::load_matrices_transposed(of_k[0].reg, value_rows::step(k, step, 0));
      queries.add(weights + weight_rows::lane_of_a(lane), step, of_k);
      prim::cuda::load_matrices_transposed(of_q[0].reg, value_rows::step(q, step, 0));
      keys.add_across(weights + weight_rows::lane_of_b(lane), step, of_q);
    }
  }
  /// Q times what queries have, a token earlier where they read the state in front of theirs, and
  /// -K times what keys have.
  __device__ __forceinline__ void put_sums(const answers_of& queries, const answers_of& keys,
                                           int warp) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int tile = i % 2, half = i / 2 % 2, block = i / 4;
      const int token = block * 16 + half * 8 + lane / 4;
      const int channel = warp * 16 + tile * 8 + lane % 4 * 2;
      const float2 q = pair_at(shared_.q, token, channel);
      const float2 k = pair_at(shared_.k, token, channel);
      const float* const of_q = queries.at[block][tile].at + 2 * half;
      const float* const of_k = keys.at[block][tile].at + 2 * half;
      const bool reads = !Before || token > 0;
      const int to = Before ? (token + Shape::tokens - 1) % Shape::tokens : token;
      *reinterpret_cast<float2*>(shared_.sums.of_queries.at(to, channel)) =
          make_float2(reads ? q.x * of_q[0] : 0.0f, reads ? q.y * of_q[1] : 0.0f);
      *reinterpret_cast<float2*>(shared_.sums.of_keys.at(token, channel)) =
          make_float2(-k.x * of_k[0], -k.y * of_k[1]);
    }
  }

 private:
  __device__ __forceinline__ void put(unsigned char* rows, int t, float x) const {
    *reinterpret_cast<std::uint16_t*>(rows + base::place_of(t)) =
        static_cast<std::uint16_t>(words::pack(x, 0.0f));
  }
  __device__ __forceinline__ float2 pair_at(const unsigned char* rows, int token,
                                            int channel) const {
    const auto word = *reinterpret_cast<const std::uint32_t*>(
        rows +
        value_rows::offset(static_cast<std::uint32_t>(token),
                           static_cast<std::uint32_t>(channel / 8)) +
        static_cast<std::uint32_t>(channel % 8 * 2));
    return make_float2(words::unpack(static_cast<std::uint16_t>(word)),
                       words::unpack(static_cast<std::uint16_t>(word >> 16)));
  }
  __device__ __forceinline__ void multiply_columns(answers_of& answers, const float* factors,
                                                   int warp) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      const float2 factor =
          *reinterpret_cast<const float2*>(factors + warp * 16 + tile * 8 + lane % 4 * 2);
#pragma unroll
      for (auto& of_block : answers.at) {
        of_block[tile].at[0] *= factor.x;
        of_block[tile].at[1] *= factor.y;
        of_block[tile].at[2] *= factor.x;
        of_block[tile].at[3] *= factor.y;
      }
    }
  }
  __device__ __forceinline__ void sum_keys(const answers_of& keys, int warp) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      const int channel = warp * 16 + tile * 8 + lane % 4 * 2;
      float sum[2] = {};
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float2 k = pair_at(shared_.k, i * 8 + lane / 4, channel);
        sum[0] = fmaf(k.x, keys.at[i / 2][tile].at[i % 2 * 2], sum[0]);
        sum[1] = fmaf(k.y, keys.at[i / 2][tile].at[i % 2 * 2 + 1], sum[1]);
      }
#pragma unroll
      for (float& x : sum) {
#pragma unroll
        for (int across = 4; across < 32; across *= 2) {
          x += __shfl_xor_sync(prim::cuda::all_lanes, x, across);
        }
      }
      if (lane < 4) {
        *reinterpret_cast<float2*>(shared_.all_keys + channel) = make_float2(sum[0], sum[1]);
      }
    }
  }
};

}  // namespace tessera::kernels::chunked_scan::sm80
