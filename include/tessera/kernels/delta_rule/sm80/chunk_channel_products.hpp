// Products of weights of pairs of tokens and rows with levels (chunk_channels.hpp), 16 tokens and
// 16 channels of a warp at a time. Sums of a block of 16 tokens, two tiles, are relative to one of
// its levels, to which rows of other blocks come by a power of 2, until all others are added; then
// each tile has its own.
#pragma once

#include <cstdint>

#include <tessera/kernels/delta_rule/sm80/chunk_channels.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_kept_states.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::delta_rule::sm80 {

/// Of 16 tokens and 16 channels: lane 4 g + t has rows g and g + 8 of channels 8 n + 2t and + 1.
struct block_sums {
  prim::cuda::accumulator at[2];
};

template <class Element, class Shape>
class channel_products {
  using words = prim::cuda::half_words<Element>;
  using key_rows = typename Shape::key_rows;
  using weight_rows = typename Shape::weight_rows;
  using levels_type = channel_levels<Shape::keys>;

 public:
  static constexpr int depths = Shape::keys / 16;

  /// `tile`: of 16 channels.
  __device__ __forceinline__ channel_products(const levels_type& levels, int tile)
      : levels_(levels), tile_(tile), lane_(static_cast<int>(threadIdx.x) % 32) {}

  /// The first of the lane's two channels of tile n of eight.
  __device__ __forceinline__ int channel_of(int n) const {
    return tile_ * 16 + n * 8 + lane_ % 4 * 2;
  }
  /// A row of the lane, of a block.
  __device__ __forceinline__ int row_of_half(int block, int half) const {
    return block * 16 + half * 8 + lane_ / 4;
  }

  /// Rows of values of a block times a state, transposed; in two sums, which do not wait for each
  /// other.
  __device__ __forceinline__ block_sums read(const kept_operands<depths>& state,
                                             const unsigned char* values, int block) const {
    const std::uint32_t first =
        prim::cuda::shared_address(values) + key_rows::lane_of_a(static_cast<std::uint32_t>(lane_));
    block_sums sums[2] = {};
#pragma unroll
    for (int i = 0; i < depths; ++i) {
      const uint4& of = state.at[i];
      prim::cuda::fragment_a rows;
      prim::cuda::load_matrices(rows.reg, key_rows::step(first, block, i));
      multiply(sums[i % 2], rows, {{of.x, of.y, of.z, of.w}});
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[0].at[i / 4].at[i % 4] += sums[1].at[i / 4].at[i % 4];
    return sums[0];
  }
  /// Both tiles of rows times factor(channel).
  template <class Factor>
  __device__ __forceinline__ void multiply_channels(block_sums& sums, const Factor& factor) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float x = factor(channel_of(i / 2) + i % 2);
      sums.at[i / 2].at[i % 2] *= x;
      sums.at[i / 2].at[2 + i % 2] *= x;
    }
  }

  /// += L rows of tokens that write, of two triangles: from sums relative to the first level of the
  /// block to such of each tile.
  __device__ __forceinline__ void add_earlier(block_sums (&sums)[2],
                                              const unsigned char* const (&triangles)[2],
                                              const unsigned char* rows, int block) const {
#pragma unroll 1
    for (int step = 0; step < block; ++step) {
      prim::cuda::fragment_b2 of_step = rows_of(rows, step);
      bring(of_step, 0, 2 * block, 2 * step);
      bring(of_step, 1, 2 * block, 2 * step + 1);
#pragma unroll
      for (int i = 0; i < 2; ++i) multiply(sums[i], block_of(triangles[i], block, step), of_step);
    }
    move<1>(sums[0], block);
    move<1>(sums[1], block);
    const prim::cuda::fragment_a own[2] = {block_of(triangles[0], block, block),
                                           block_of(triangles[1], block, block)};
    prim::cuda::fragment_b2 of_step = rows_of(rows, block);
#pragma unroll
    for (int i = 0; i < 2; ++i) multiply(sums[i], {{own[i].reg[0], 0, 0, 0}}, of_step);
    bring(of_step, 0, 2 * block + 1, 2 * block);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      multiply(sums[i], {{0, own[i].reg[1], 0, own[i].reg[3]}}, of_step);
    }
  }

  struct transposed_pair {
    const unsigned char *triangle, *rows;
  };
  /// += L^T rows of tokens that read, of two triangles: from sums relative to the second level of
  /// the block to such of each tile.
  __device__ __forceinline__ void add_later(block_sums& sums, const transposed_pair (&pairs)[2],
                                            int block) const {
#pragma unroll 1
    for (int step = block + 1; step < 4; ++step) {
#pragma unroll
      for (const transposed_pair& pair : pairs) {
        prim::cuda::fragment_b2 of_step = rows_of(pair.rows, step);
        bring(of_step, 0, 2 * step, 2 * block + 1);
        bring(of_step, 1, 2 * step + 1, 2 * block + 1);
        multiply(sums, turned(pair.triangle, step, block), of_step);
      }
    }
    move<0>(sums, block);
#pragma unroll
    for (const transposed_pair& pair : pairs) {
      const prim::cuda::fragment_a own = turned(pair.triangle, block, block);
      prim::cuda::fragment_b2 of_step = rows_of(pair.rows, block);
      multiply(sums, {{0, 0, 0, own.reg[3]}}, of_step);
      bring(of_step, 1, 2 * block + 1, 2 * block);
      multiply(sums, {{own.reg[0], 0, own.reg[2], 0}}, of_step);
    }
  }

 private:
  /// Tokens 16 step on, as operand B [tokens, channels].
  __device__ __forceinline__ prim::cuda::fragment_b2 rows_of(const unsigned char* rows,
                                                             int step) const {
    prim::cuda::fragment_b2 of_step;
    prim::cuda::load_matrices_transposed(
        of_step.reg, key_rows::step(prim::cuda::shared_address(rows) +
                                        key_rows::lane_of_a(static_cast<std::uint32_t>(lane_)),
                                    step, tile_));
    return of_step;
  }
  /// A block of L as operand A.
  __device__ __forceinline__ prim::cuda::fragment_a block_of(const unsigned char* triangle,
                                                             int block, int step) const {
    prim::cuda::fragment_a of_block;
    prim::cuda::load_matrices(
        of_block.reg,
        weight_rows::step(prim::cuda::shared_address(triangle) +
                              weight_rows::lane_of_a(static_cast<std::uint32_t>(lane_)),
                          block, step));
    return of_block;
  }
  /// And of L^T.
  __device__ __forceinline__ prim::cuda::fragment_a turned(const unsigned char* triangle, int step,
                                                           int block) const {
    prim::cuda::fragment_a of_block;
    prim::cuda::load_matrices_transposed(
        of_block.reg,
        weight_rows::step(prim::cuda::shared_address(triangle) +
                              weight_rows::lane_of_b(static_cast<std::uint32_t>(lane_)),
                          step, block));
    return of_block;
  }
  /// The first or second eight tokens of an operand times 2^(level of tile `to` - that of `from`).
  __device__ __forceinline__ void bring(prim::cuda::fragment_b2& of_step, int half, int to,
                                        int from) const {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      std::uint32_t& word = of_step.reg[2 * n + half];
      word = times_powers(word, levels_.power(to, from, tile_ * 16 + n * 8 + lane_ / 4));
    }
  }
  /// Sums of a tile of a block times 2^(level of its second tile - that of the first).
  template <int Half>
  __device__ __forceinline__ void move(block_sums& sums, int block) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums.at[i / 2].at[2 * Half + i % 2] *=
          levels_.single_power(2 * block + 1, 2 * block, channel_of(i / 2) + i % 2);
    }
  }
  static __device__ __forceinline__ void multiply(block_sums& sums,
                                                  const prim::cuda::fragment_a& rows,
                                                  const prim::cuda::fragment_b2& channels) {
    words::template multiply_add<0>(sums.at[0], rows, channels);
    words::template multiply_add<1>(sums.at[1], rows, channels);
  }

  const levels_type& levels_;
  int tile_, lane_;
};

}  // namespace tessera::kernels::delta_rule::sm80
