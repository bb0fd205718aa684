// Up to 16 heads of a token as rows of products on the matrix unit, f16 and bf16, for a warp:
// scores, softmax and sums of values of a tile of keys at a time, and what is stored at the end.
// All rows see the same keys: the first ones of a tile.
#pragma once

#include <cstdint>

#include <tessera/kernels/sparse_attention/sm80/native_sparse_rows.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/element_cast.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/shared_tile.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

/// What lies in a tile as values of keys that a token does not see.
enum class unseen_values { zeros, anything };

/// Rows lane / 4 and lane / 4 + 8 of a token; columns of a row are spread over a quad.
template <class Kernel, int Keys>
struct token_rows {
  using element = element_t<Kernel::config.type>;
  using words = prim::cuda::half_words<element>;
  static constexpr int width = Kernel::config.head_dim;
  using q_tile = prim::cuda::shared_tile<tile, width>;
  using kv_tile = prim::cuda::shared_tile<Keys, width>;
  static constexpr int groups = Keys / 16, dims = width / 16;
  static constexpr float most_exponent = 8.0f;
  prim::cuda::fragment_a q[dims];
  prim::cuda::accumulator out[2 * dims] = {};
  /// Products that weights stand beside: a maximum, but for weights of up to 2^most_exponent.
  float maximum[2] = {prim::minus_infinity, prim::minus_infinity};
  float denominator[2] = {0.0f, 0.0f};

  /// Their products with keys are what `units_of` multiplies: of scales below 0 they change their
  /// sign, of 0 they are zeros.
  __device__ __forceinline__ void load_queries(std::uint32_t from, float scale, unsigned lane) {
    const std::uint32_t kept = scale == 0.0f ? 0u : 0xffffffffu;
    const std::uint32_t sign = scale < 0.0f ? 0x80008000u : 0u;
#pragma unroll
    for (int d = 0; d < dims; ++d) {
      prim::cuda::load_matrices(q[d].reg, q_tile::step(from + q_tile::lane_of_a(lane), 0, d));
#pragma unroll
      for (std::uint32_t& two : q[d].reg) two = (two & kept) ^ sign;
    }
  }
  /// Exponents of two that a product counts for. Above 0, so that the largest product has the
  /// largest weight, and the scale goes into the exponent with one operation.
  static __device__ __forceinline__ float units_of(float scale) {
    return scale == 0.0f ? prim::log2_e : fabsf(scale) * prim::log2_e;
  }
  /// Adds the first `count` keys of a tile, behind which its values lie. `units`: of products.
  template <unseen_values Unseen>
  __device__ __forceinline__ void add(std::uint32_t keys, int count, float units, unsigned lane) {
    prim::cuda::accumulator scores[2 * groups] = {};
    const std::uint32_t k_lane = keys + kv_tile::lane_of_b(lane);
#pragma unroll
    for (int d = 0; d < dims; ++d) {
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        prim::cuda::fragment_b2 k;
        prim::cuda::load_matrices(k.reg, kv_tile::step(k_lane, g, d));
        words::template multiply_add<0>(scores[2 * g], q[d], k);
        words::template multiply_add<1>(scores[2 * g + 1], q[d], k);
      }
    }
    const int t = static_cast<int>(lane) % 4;
    // Tiles that are seen as a whole go their own way only where values are masked besides: the
    // branch around these selections alone costs registers.
    if (Unseen == unseen_values::zeros || count < Keys) {
#pragma unroll
      for (int n = 0; n < 2 * groups; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (n * 8 + t * 2 + i % 2 >= count) scores[n].at[i] = prim::minus_infinity;
        }
      }
    }
    weigh(scores, units);
    const std::uint32_t v_lane = keys + kv_tile::bytes + kv_tile::lane_of_a(lane);
    if (Unseen == unseen_values::zeros || count == Keys) {
      add_values(scores, v_lane, [](int, prim::cuda::fragment_b2&) {});
    } else {
      add_values(scores, v_lane, [&](int g, prim::cuda::fragment_b2& v) {
#pragma unroll
        for (int eight = 0; eight < 2; ++eight) {
          const int key = 16 * g + 8 * eight + 2 * t;
          const std::uint32_t seen =
              (key < count ? 0xffffu : 0u) | (key + 1 < count ? 0xffff0000u : 0u);
          v.reg[eight] &= seen;
          v.reg[2 + eight] &= seen;
        }
      });
    }
  }
  /// Stores the rows of `heads` heads, gated, beside what the other branches gave. A warp.
  __device__ __forceinline__ void store(const native_sparse_launch& launch,
                                        const token_sequence& tokens, std::int64_t token,
                                        std::int64_t first_head, int heads) const {
    const native_sparse_kernel_args& call = launch.call;
    const int lane = static_cast<int>(threadIdx.x % prim::cuda::warp_size);
    const float sums[2] = {prim::cuda::sum_of_quad(denominator[0]),
                           prim::cuda::sum_of_quad(denominator[1])};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = sums[half];
      const int row = lane / 4 + half * 8;
      if (row >= heads) continue;
      const std::int64_t head = first_head + row;
      const float factor = launch.gate_of(sparse_branch::selected, tokens, token, head) *
                           (sum == 0.0f ? 0.0f : 1.0f / sum);
      auto* const to = static_cast<element*>(call.out.data) +
                       native_sparse_launch::offset(call.out, tokens, token, head);
      const float* more = nullptr;
      if (launch.others.data != nullptr) {
        more = static_cast<const float*>(launch.others.data) +
               native_sparse_launch::offset(launch.others, tokens, token, head);
      }
#pragma unroll
      for (int n = 0; n < 2 * dims; ++n) {
        const int at = n * 8 + lane % 4 * 2;
        const float first = more == nullptr ? 0.0f : more[at];
        const float second = more == nullptr ? 0.0f : more[at + 1];
        prim::cuda::store_pair(to + at, fmaf(out[n].at[2 * half], factor, first),
                               fmaf(out[n].at[2 * half + 1], factor, second));
      }
    }
  }

 private:
  /// Weights in the place of products.
  __device__ __forceinline__ void weigh(prim::cuda::accumulator (&scores)[2 * groups],
                                        float units) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = maximum[half];
#pragma unroll
      for (const auto& pair : scores) {
        most = fmaxf(most, fmaxf(pair.at[2 * half], pair.at[2 * half + 1]));
      }
      most = prim::cuda::maximum_of_quad(most);
      // Raised only where a weight would be above 2^most_exponent: of the rows of a warp one has a
      // new maximum in most tiles, for which all would wait.
      if ((most - maximum[half]) * units > most_exponent) {
        const float rescale = prim::cuda::exp2_fast((maximum[half] - most) * units);
        denominator[half] *= rescale;
#pragma unroll
        for (auto& sums : out) {
          sums.at[2 * half] *= rescale;
          sums.at[2 * half + 1] *= rescale;
        }
        maximum[half] = most;
      }
      const float minus_shift = -prim::finite_maximum(maximum[half]) * units;
#pragma unroll
      for (auto& pair : scores) {
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
          float& weight = pair.at[2 * half + odd];
          weight = prim::cuda::exp2_fast(fmaf(weight, units, minus_shift));
          denominator[half] += weight;
        }
      }
    }
  }
  /// out += P V, where `mask(group of keys, values)` may clear values.
  template <class Mask>
  __device__ __forceinline__ void add_values(const prim::cuda::accumulator (&weights)[2 * groups],
                                             std::uint32_t v_lane, const Mask& mask) {
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      const auto &low = weights[2 * g].at, &high = weights[2 * g + 1].at;
      const prim::cuda::fragment_a p{{words::pack(low[0], low[1]), words::pack(low[2], low[3]),
                                      words::pack(high[0], high[1]),
                                      words::pack(high[2], high[3])}};
#pragma unroll
      for (int d = 0; d < dims; ++d) {
        prim::cuda::fragment_b2 v;
        prim::cuda::load_matrices_transposed(v.reg, kv_tile::step(v_lane, g, d));
        mask(g, v);
        words::template multiply_add<0>(out[2 * d], p, v);
        words::template multiply_add<1>(out[2 * d + 1], p, v);
      }
    }
  }
};

}  // namespace tessera::kernels::sparse_attention::sm80
