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

  /// M beta and P.
  __device__ __forceinline__ void make_weights() const {
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

  /// -M beta times the rows of k that read, in their place.
  __device__ __forceinline__ void make_readers() const {
    const std::uint64_t inverse = describe_rows<weight_rows>(item_.inverse),
                        reads = describe_rows<key_rows>(item_.held);
    float sums[Shape::keys / 2];
    multiply_across(sums, inverse, reads);
    wait_for_makers<Shape>();
    const std::uint32_t held = prim::cuda::shared_address(item_.held);
#pragma unroll
    for (int i = 0; i < Shape::keys / 4; ++i) {
      const int row = warp_ * 16 + lane_ / 4 + i % 2 * 8;
      base::template store_word<key_rows>(held, row, i / 2,
                                          words::pack(-sums[2 * i], -sums[2 * i + 1]));
    }
  }

 private:
  using base::begin_rows;
  using base::lane_;
  using base::store_word;
  using base::warp_;

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
      const float beta = shared_.beta[row];
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
  /// Weights of tokens up to the row's own, rounded; those of others are 0.
  __device__ __forceinline__ void store_weights(unsigned char* to, const float (&sums)[32]) const {
    const std::uint32_t weights = prim::cuda::shared_address(to);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int row = warp_ * 16 + lane_ / 4 + i % 2 * 8, token = i / 2 * 8 + lane_ % 4 * 2;
      const float low = sums[2 * i], high = sums[2 * i + 1];
      store_word(weights, row, i / 2,
                 words::pack(token <= row ? low : 0.0f, token < row ? high : 0.0f));
    }
  }
  memory& shared_;
  walk_item<Shape>& item_;
};

}  // namespace tessera::kernels::delta_rule::sm90
