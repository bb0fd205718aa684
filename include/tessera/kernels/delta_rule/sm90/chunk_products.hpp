// Products of a chunk's rows, by the warpgroup that makes operands: weights of pairs of tokens, the
// inverse of I + A, and what reads the state.
#pragma once

#include <cstdint>

#include <tessera/kernels/delta_rule/sm80/chunk_inverse.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_inverse.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_memory.hpp>
#include <tessera/kernels/delta_rule/sm90/pair_products.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>
#include <tessera/prim/cuda/wgmma.hpp>

namespace tessera::kernels::delta_rule::sm90 {

template <class Element, class Shape>
class chunk_products : pair_products<Element, Shape> {
  using base = pair_products<Element, Shape>;
  using memory = walk_memory<Shape>;
  using words = prim::cuda::half_words<Element>;
  using key_rows = typename Shape::key_rows;
  using weight_rows = typename Shape::weight_rows;

 public:
  __device__ __forceinline__ chunk_products(memory& shared, walk_item<Shape>& item)
      : base(static_cast<int>(threadIdx.x) / 32, static_cast<int>(threadIdx.x) % 32),
        shared_(shared),
        item_(item) {}

  /// M beta and P; of low-rank updates weights of queries with k and products of rows that read
  /// with k, too. The segment begins with token `first`.
  __device__ __forceinline__ void make_weights(int first) const {
    const auto put = [&](int row, int tile, const prim::cuda::accumulator& sums, float sign) {
      base::put_inverse(item_.inverse, shared_.beta, row, tile, sums, sign);
    };
    const auto wait = [] { wait_for_makers<Shape>(); };
    {
      float scores[32], sums[32];
      begin_rows(scores, item_.held, item_.k);
      begin_rows(sums, item_.q, item_.k);
      prim::cuda::wait_products<1>();
      prim::cuda::keep_in_place(scores);
      store_scores(scores);
      prim::cuda::wait_products<0>();
      prim::cuda::keep_in_place(sums);
      store_weights(item_.weights, sums);
    }
    if constexpr (Shape::low_rank) make_own_weights(first);
    invert_diagonal(shared_.solved, warp_, put, lane_);
    wait();
    invert_pairs(shared_.solved, warp_, put, wait);
    prim::cuda::show_writes_to_async_units();
    wait();
  }

  /// P alone.
  __device__ __forceinline__ void make_pairs() const {
    float sums[32];
    begin_rows(sums, item_.q, item_.k);
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(sums);
    store_weights(item_.weights, sums);
  }

  /// -M beta times the rows of k that read, in their place. Of low-rank updates M times the rows
  /// that read, and M times their products with k in the place of M.
  __device__ __forceinline__ void make_readers() const {
    constexpr float sign = Shape::low_rank ? 1.0f : -1.0f;
    const std::uint64_t inverse = describe_rows<weight_rows>(item_.inverse),
                        reads = describe_rows<key_rows>(item_.held);
    [[maybe_unused]] std::uint32_t own[16];
    if constexpr (Shape::low_rank) {
      float products[32];
      multiply_across(products, inverse, describe_rows<weight_rows>(shared_.products));
#pragma unroll
      for (int i = 0; i < 16; ++i) own[i] = words::pack(products[2 * i], products[2 * i + 1]);
    }
    float sums[Shape::keys / 2];
    multiply_across(sums, inverse, reads);
    wait_for_makers<Shape>();
    const std::uint32_t held = prim::cuda::shared_address(item_.held);
#pragma unroll
    for (int i = 0; i < Shape::keys / 4; ++i) {
      const int row = warp_ * 16 + lane_ / 4 + i % 2 * 8;
      base::template store_word<key_rows>(held, row, i / 2,
                                          words::pack(sign * sums[2 * i], sign * sums[2 * i + 1]));
    }
    if constexpr (Shape::low_rank) {
      const std::uint32_t to = prim::cuda::shared_address(item_.inverse);
#pragma unroll
      for (int i = 0; i < 16; ++i)
        store_word(to, warp_ * 16 + lane_ / 4 + i % 2 * 8, i / 2, own[i]);
    }
  }

 private:
  using base::begin_rows;
  using base::lane_;
  using base::store_word;
  using base::warp_;

  /// Weights of queries with k, to which what rounding took from their rows is added: a row of
  /// small answers would show it. And products of rows that read with k of earlier tokens.
  __device__ __forceinline__ void make_own_weights(int first) const {
    float sums[32];
    begin_rows(sums, item_.q, item_.own);
    begin_rows(sums, shared_.q, item_.own, true);
    begin_rows(sums, item_.q, shared_.k, true);
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(sums);
    store_weights(item_.own_weights, sums, first);
    begin_rows(sums, item_.held, item_.own);
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(sums);
    store_weights(shared_.products, sums, 0, 0);
  }

  /// Weights times columns of rows.
  template <int Count>
  static __device__ __forceinline__ void multiply_across(float (&sums)[Count],
                                                         std::uint64_t weights,
                                                         std::uint64_t rows) {
    prim::cuda::begin_products();
#pragma unroll
    for (int i = 0; i < Shape::tokens / 16; ++i) {
      prim::cuda::warpgroup_product<Element, 2 * Count>::template multiply<false, true>(
          sums, weight_rows::along(weights, i), weight_rows::across(rows, i), i > 0);
    }
    prim::cuda::commit_products();
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(sums);
  }

  /// A to `solved`.
  __device__ __forceinline__ void store_scores(const float (&sums)[32]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_ * 16 + lane_ / 4 + half * 8;
      const float beta = Shape::low_rank ? -1.0f : shared_.beta[row];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (i / 2 > warp_) break;
        const int token = i * 8 + lane_ % 4 * 2;
        const float low = beta * sums[4 * i + 2 * half];
        const float high = beta * sums[4 * i + 2 * half + 1];
        *reinterpret_cast<float2*>(&shared_.solved[row][token]) =
            make_float2(token < row ? low : 0.0f, token + 1 < row ? high : 0.0f);
      }
    }
  }
  /// Weights of tokens from `first` on and up to the row's own, or with `more` 0 to the one before
  /// it, rounded; those of others are 0.
  __device__ __forceinline__ void store_weights(unsigned char* to, const float (&sums)[32],
                                                int first = 0, int more = 1) const {
    const std::uint32_t weights = prim::cuda::shared_address(to);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int row = warp_ * 16 + lane_ / 4 + i % 2 * 8, token = i / 2 * 8 + lane_ % 4 * 2;
      const float low = sums[2 * i], high = sums[2 * i + 1];
      store_word(weights, row, i / 2,
                 words::pack(token >= first && token < row + more ? low : 0.0f,
                             token + 1 >= first && token + 1 < row + more ? high : 0.0f));
    }
  }
  memory& shared_;
  walk_item<Shape>& item_;
};

}  // namespace tessera::kernels::delta_rule::sm90
