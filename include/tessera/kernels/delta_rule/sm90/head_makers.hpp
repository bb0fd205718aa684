// The warpgroup that makes weights of pairs of tokens of chunks with decays of heads: P, and M beta
// with M the inverse of I + A. Both are 0 above their diagonals from the start.
#pragma once

#include <cstdint>

#include <tessera/kernels/delta_rule/sm80/chunk_inverse.hpp>
#include <tessera/kernels/delta_rule/sm90/chunk_inverse.hpp>
#include <tessera/kernels/delta_rule/sm90/head_memory.hpp>
#include <tessera/kernels/delta_rule/sm90/pair_products.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>

namespace tessera::kernels::delta_rule::sm90 {

template <class Element, class Shape>
class weight_maker : pair_products<Element, Shape> {
  using base = pair_products<Element, Shape>;
  using base::lane_;
  using base::warp_;
  using memory = head_memory<Shape>;
  using words = prim::cuda::half_words<Element>;

 public:
  __device__ __forceinline__ weight_maker(memory& shared, head_item<Shape>& item,
                                          const head_facts& facts)
      : base(found_anew((static_cast<int>(threadIdx.x) - Shape::first_maker) / 32),
             found_anew(static_cast<int>(threadIdx.x) % 32)),
        solved_(*reinterpret_cast<sm80::solved_rows*>(&shared.solved[0][0] + found_anew(0))),
        item_(item),
        facts_(facts) {}

  static __device__ __forceinline__ void make_all(memory& shared) {
    const std::uint32_t barriers = prim::cuda::shared_address(&shared.ring);
    const std::uint32_t loaded = prim::cuda::shared_address(&shared.loaded);
    prim::cuda::ring_place<Shape::stages> ring;
    for (;; ring.advance()) {
      ring.wait_full(loaded);
      const head_facts& facts = shared.facts[ring.stage()];
      const bool is_last = facts.tokens.end == 0;
      if (!is_last) weight_maker(shared, shared.items[ring.stage()], facts).make();
      prim::cuda::show_writes_to_async_units();
      prim::cuda::arrive(ring.full(barriers));
      if (is_last) break;
    }
  }

 private:
  __device__ __forceinline__ void make() const {
    float sums[32];
    if constexpr (!Shape::corrects) {
      base::begin_rows(sums, item_.q, item_.k);
      store_weights(sums);
    } else {
      const auto put = [&](int row, int tile, const prim::cuda::accumulator& of_tile, float sign) {
        base::put_inverse(item_.inverse, facts_.beta, row, tile, of_tile, sign);
      };
      const auto wait = [] { prim::cuda::wait_for_threads(1, Shape::maker_threads); };
      base::begin_rows(sums, item_.k, item_.k);
      store_scores(sums);
      invert_diagonal(solved_, warp_, put, lane_);
      // Earlier, its sums would make the blocks of the inverse spill.
      base::begin_rows(sums, item_.q, item_.k);
      store_weights(sums);
      wait();
      invert_pairs(solved_, warp_, put, wait, lane_);
      wait();  // All have read what the next chunk's take the place of.
    }
  }
  /// Calls put(block, x) for the blocks of 16 earlier tokens of sums, and the warp's own: of rows
  /// l / 4 and l / 4 + 8, `scale` times what is left of tokens l % 4 * 2, the next, and those 8 on.
  /// Its own tokens see those in front of them, and themselves if `Own`.
  template <bool Own, class Put>
  __device__ __forceinline__ void with_blocks(const float (&sums)[32], const float (&scale)[2],
                                              const Put& put) const {
    const int row = lane_ / 4;
    const float decays[2] = {facts_.sums[warp_ * 16 + row], facts_.sums[warp_ * 16 + row + 8]};
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      if (block > warp_) break;
      float x[2][4];
      if (block < warp_) {
        const float end = facts_.sums[block * 16 + 15];
        const float factors[2] = {scale[0] * prim::cuda::exp2_fast(decays[0] - end),
                                  scale[1] * prim::cuda::exp2_fast(decays[1] - end)};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 left = pair_of(facts_.left, block, i / 2);
          const float* const at = sums + 8 * block + i / 2 * 4 + i % 2 * 2;
          x[i % 2][i / 2 * 2] = factors[i % 2] * left.x * at[0];
          x[i % 2][i / 2 * 2 + 1] = factors[i % 2] * left.y * at[1];
        }
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 earlier = pair_of(facts_.sums, block, i / 2);
          const float2 keys = pair_of(facts_.scale_k, block, i / 2);
          const int token = i / 2 * 8 + lane_ % 4 * 2 - (Own ? 1 : 0), own = row + i % 2 * 8;
          const float* const at = sums + 8 * block + i / 2 * 4 + i % 2 * 2;
          const float2 left = make_float2(prim::cuda::exp2_fast(decays[i % 2] - earlier.x),
                                          prim::cuda::exp2_fast(decays[i % 2] - earlier.y));
          x[i % 2][i / 2 * 2] = token < own ? scale[i % 2] * keys.x * left.x * at[0] : 0.0f;
          x[i % 2][i / 2 * 2 + 1] = token + 1 < own ? scale[i % 2] * keys.y * left.y * at[1] : 0.0f;
        }
      }
      put(block, x);
    }
  }
  __device__ __forceinline__ float2 pair_of(const float* numbers, int block, int tile) const {
    return *reinterpret_cast<const float2*>(numbers + block * 16 + tile * 8 + lane_ % 4 * 2);
  }

  /// A to `solved`.
  __device__ __forceinline__ void store_scores(float (&sums)[32]) const {
    const int row = warp_ * 16 + lane_ / 4;
    const float scale[2] = {facts_.beta[row] * facts_.scale_k[row],
                            facts_.beta[row + 8] * facts_.scale_k[row + 8]};
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(sums);
    with_blocks<false>(sums, scale, [&](int block, const float(&x)[2][4]) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        *reinterpret_cast<float2*>(
            &solved_[row + i % 2 * 8][block * 16 + i / 2 * 8 + lane_ % 4 * 2]) =
            make_float2(x[i % 2][i / 2 * 2], x[i % 2][i / 2 * 2 + 1]);
      }
    });
  }
  /// P, rounded.
  __device__ __forceinline__ void store_weights(float (&sums)[32]) const {
    const int row = warp_ * 16 + lane_ / 4;
    const float scale[2] = {facts_.scale_q[row], facts_.scale_q[row + 8]};
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(sums);
    with_blocks<true>(sums, scale, [&](int block, const float(&x)[2][4]) {
      const std::uint32_t word[4] = {words::pack(x[0][0], x[0][1]), words::pack(x[1][0], x[1][1]),
                                     words::pack(x[0][2], x[0][3]), words::pack(x[1][2], x[1][3])};
      prim::cuda::store_matrices(
          prim::cuda::shared_address(item_.weights) +
              Shape::weight_rows::offset(static_cast<std::uint32_t>(warp_ * 16 + lane_ % 16),
                                         static_cast<std::uint32_t>(block * 2 + lane_ / 16)),
          word);
    });
  }

  sm80::solved_rows& solved_;
  head_item<Shape>& item_;
  const head_facts& facts_;
};

}  // namespace tessera::kernels::delta_rule::sm90
