// Products of weights of pairs of tokens and rows with levels (chunk_channels.hpp): a warp has 16
// channels of all tokens. Sums of a block of 16 tokens, two tiles, are relative to one of its
// levels, to which rows of other blocks come by a power of 2, until all others are added; then each
// tile has its own.
#pragma once

#include <cstdint>

#include <tessera/kernels/delta_rule/sm80/chunk_channels.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_answers.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::delta_rule::sm80 {

template <class Element, class Shape>
class channel_products {
  using words = prim::cuda::half_words<Element>;
  using key_rows = typename Shape::key_rows;
  using weight_rows = typename Shape::weight_rows;
  using levels_type = channel_levels<Shape::keys>;

 public:
  using answers_type = recurrence::sm80::chunk_answers<Element, Shape>;

  /// `tile`: of 16 channels.
  __device__ __forceinline__ channel_products(const levels_type& levels, int tile)
      : levels_(levels), tile_(tile), lane_(static_cast<int>(threadIdx.x) % 32) {}

  /// Rows of a block times factor(tile of its two, channel), of both tiles that of the same.
  template <class Factor>
  __device__ __forceinline__ void multiply_blocks_by(answers_type& answers,
                                                     const Factor& factor) const {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int block = i / 4, n = i / 2 % 2, j = i % 2;
      const float x = factor(block, channel_of(n) + j);
      answers.at[block][n].at[j] *= x;
      answers.at[block][n].at[2 + j] *= x;
    }
  }

  /// += L rows of tokens that write: from sums relative to the first level of each block to such of
  /// each tile.
  __device__ __forceinline__ void add_earlier(answers_type& answers, const unsigned char* triangle,
                                              const unsigned char* rows) const {
    const std::uint32_t weights = prim::cuda::shared_address(triangle) +
                                  weight_rows::lane_of_a(prim::cuda::thread_index() % 32);
#pragma unroll
    for (int block = 0; block < 4; ++block) {
#pragma unroll
      for (int step = 0; step < block; ++step) {
        prim::cuda::fragment_a of_block;
        prim::cuda::load_matrices(of_block.reg, weight_rows::step(weights, block, step));
        prim::cuda::fragment_b2 of_step = rows_of(rows, step);
        bring(of_step, 0, 2 * block, 2 * step);
        bring(of_step, 1, 2 * block, 2 * step + 1);
        multiply(answers, block, of_block, of_step);
      }
      move<1>(answers, block, 2 * block + 1, 2 * block);
      prim::cuda::fragment_a own;
      prim::cuda::load_matrices(own.reg, weight_rows::step(weights, block, block));
      prim::cuda::fragment_b2 of_step = rows_of(rows, block);
      multiply(answers, block, {{own.reg[0], 0, 0, 0}}, of_step);
      bring(of_step, 0, 2 * block + 1, 2 * block);
      multiply(answers, block, {{0, own.reg[1], 0, own.reg[3]}}, of_step);
    }
  }

  struct transposed_pair {
    const unsigned char *triangle, *rows;
  };
  /// += L^T rows of tokens that read, of two triangles: from sums relative to the second level of
  /// each block to such of each tile.
  __device__ __forceinline__ void add_later(answers_type& answers,
                                            const transposed_pair (&pairs)[2]) const {
#pragma unroll
    for (int block = 0; block < 4; ++block) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int step = block + 1; step < 4; ++step) {
          const prim::cuda::fragment_a of_block = turned(pairs[i].triangle, step, block);
          prim::cuda::fragment_b2 of_step = rows_of(pairs[i].rows, step);
          bring(of_step, 0, 2 * step, 2 * block + 1);
          bring(of_step, 1, 2 * step + 1, 2 * block + 1);
          multiply(answers, block, of_block, of_step);
        }
      }
      move<0>(answers, block, 2 * block + 1, 2 * block);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const prim::cuda::fragment_a own = turned(pairs[i].triangle, block, block);
        prim::cuda::fragment_b2 of_step = rows_of(pairs[i].rows, block);
        multiply(answers, block, {{0, 0, 0, own.reg[3]}}, of_step);
        bring(of_step, 1, 2 * block + 1, 2 * block);
        multiply(answers, block, {{own.reg[0], 0, own.reg[2], 0}}, of_step);
      }
    }
  }

  /// The first of the lane's two channels of tile n of eight.
  __device__ __forceinline__ int channel_of(int n) const {
    return tile_ * 16 + n * 8 + lane_ % 4 * 2;
  }

 private:
  /// Tokens 16 step on, as operand B [tokens, channels].
  __device__ __forceinline__ prim::cuda::fragment_b2 rows_of(const unsigned char* rows,
                                                             int step) const {
    prim::cuda::fragment_b2 of_step;
    prim::cuda::load_matrices_transposed(
        of_step.reg, key_rows::step(prim::cuda::shared_address(rows) +
                                        key_rows::lane_of_a(prim::cuda::thread_index() % 32),
                                    step, tile_));
    return of_step;
  }
  /// A block of L^T as operand A.
  static __device__ __forceinline__ prim::cuda::fragment_a turned(const unsigned char* triangle,
                                                                  int step, int block) {
    prim::cuda::fragment_a of_block;
    prim::cuda::load_matrices_transposed(
        of_block.reg, weight_rows::step(prim::cuda::shared_address(triangle) +
                                            weight_rows::lane_of_b(prim::cuda::thread_index() % 32),
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
  /// The same of sums of a tile of a block.
  template <int Half>
  __device__ __forceinline__ void move(answers_type& answers, int block, int to, int from) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      answers.at[block][i / 2].at[2 * Half + i % 2] *=
          levels_.single_power(to, from, channel_of(i / 2) + i % 2);
    }
  }
  static __device__ __forceinline__ void multiply(answers_type& answers, int block,
                                                  const prim::cuda::fragment_a& rows,
                                                  const prim::cuda::fragment_b2& channels) {
    words::template multiply_add<0>(answers.at[block][0], rows, channels);
    words::template multiply_add<1>(answers.at[block][1], rows, channels);
  }

  const levels_type& levels_;
  int tile_, lane_;
};

}  // namespace tessera::kernels::delta_rule::sm80
