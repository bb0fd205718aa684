// What a warp has of a chunk's outputs, and their way to memory.
#pragma once

#include <cstdint>

#include <tessera/kernels/recurrence/common/sequence.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_tiles.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::recurrence::sm80 {

/// Scores of a block of 16 rows with the tokens that it sees, 16 at a time. `Sharers` warps take
/// turns: the calling one has those of `share`, `share + Sharers` and so on.
template <class Element, class Shape, int Sharers>
__device__ __forceinline__ void multiply_rows(prim::cuda::accumulator (&scores)[8 / Sharers],
                                              std::uint32_t rows, std::uint32_t keys, int block,
                                              int share) {
  using words = prim::cuda::half_words<Element>;
  using key_rows = typename Shape::key_rows;
  const auto lane = prim::cuda::thread_index() % 32;
  rows += key_rows::lane_of_a(lane);
  keys += key_rows::lane_of_b(lane);
#pragma unroll
  for (int depth = 0; depth < Shape::keys / 16; ++depth) {
    prim::cuda::fragment_a of_rows;
    prim::cuda::fragment_b2 of_keys[4 / Sharers];
    prim::cuda::load_matrices(of_rows.reg, key_rows::step(rows, block, depth));
#pragma unroll
    for (int pair = 0; pair < 4 / Sharers; ++pair) {
      if (pair * Sharers + share > block) break;
      prim::cuda::load_matrices(of_keys[pair].reg,
                                key_rows::step(keys, pair * Sharers + share, depth));
    }
#pragma unroll
    for (int pair = 0; pair < 4 / Sharers; ++pair) {
      if (pair * Sharers + share > block) break;
      words::template multiply_add<0>(scores[2 * pair], of_rows, of_keys[pair]);
      words::template multiply_add<1>(scores[2 * pair + 1], of_rows, of_keys[pair]);
    }
  }
}

/// Steps [first, end) of a chunk.
struct chunk_segment {
  int first = 0, end = 0;
};

/// Where a block's outputs go: from its first column on, of which there are so many.
struct chunk_outputs {
  void* data = nullptr;
  int columns = 0;
  float scale = 1.0f;
};

/// What a warp has of a chunk's outputs: all tokens, its columns.
template <class Element, class Shape>
struct chunk_answers {
  using words = prim::cuda::half_words<Element>;

  prim::cuda::accumulator at[4][2 * Shape::tiles];

  __device__ __forceinline__ void multiply_tokens(const float* factors, float factor = 1.0f) {
    const int row = static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      const float upper = factor * factors[block * 16 + row];
      const float lower = factor * factors[block * 16 + row + 8];
#pragma unroll
      for (auto& tile : at[block]) {
        tile.at[0] *= upper;
        tile.at[1] *= upper;
        tile.at[2] *= lower;
        tile.at[3] *= lower;
      }
    }
  }

  /// += rows state, of rows of queries at `queries`; of f16 times `factor`.
  template <class State>
  __device__ __forceinline__ void read(const State& state, std::uint32_t queries,
                                       float factor = 1.0f) {
    using key_rows = typename Shape::key_rows;
    queries += key_rows::lane_of_a(prim::cuda::thread_index() % 32);
#pragma unroll
    for (int depth = 0; depth < Shape::keys / 16; ++depth) {
      prim::cuda::fragment_a rows[4];
#pragma unroll
      for (int block = 0; block < 4; ++block) {
        prim::cuda::load_matrices(rows[block].reg, key_rows::step(queries, block, depth));
      }
#pragma unroll
      for (int i = 0; i < Shape::tiles; ++i) {
        const prim::cuda::fragment_b2 columns = state.template operand<Element>(i, depth, factor);
#pragma unroll
        for (int block = 0; block < 4; ++block) {
          words::template multiply_add<0>(at[block][2 * i], rows[block], columns);
          words::template multiply_add<1>(at[block][2 * i + 1], rows[block], columns);
        }
      }
    }
  }
  /// += weights values, of 16 tokens from 16 step on, which later tokens see; `weights` as operand
  /// A.
  __device__ __forceinline__ void add(std::uint32_t weights, int step,
                                      const prim::cuda::fragment_b2 (&values)[Shape::tiles]) {
    prim::cuda::fragment_a rows[4];
#pragma unroll
    for (int block = step; block < 4; ++block) {
      prim::cuda::load_matrices(rows[block].reg, Shape::weight_rows::step(weights, block, step));
    }
#pragma unroll
    for (int block = step; block < 4; ++block) {
#pragma unroll
      for (int i = 0; i < Shape::tiles; ++i) {
        words::template multiply_add<0>(at[block][2 * i], rows[block], values[i]);
        words::template multiply_add<1>(at[block][2 * i + 1], rows[block], values[i]);
      }
    }
  }

  /// += transposed weights values, of 16 tokens from 16 step on, which see earlier ones; `weights`
  /// as operand B.
  __device__ __forceinline__ void add_across(
      std::uint32_t weights, int step, const prim::cuda::fragment_b2 (&values)[Shape::tiles]) {
#pragma unroll
    for (int block = 0; block <= step; ++block) {
      prim::cuda::fragment_a rows;
      prim::cuda::load_matrices_transposed(rows.reg,
                                           Shape::weight_rows::step(weights, step, block));
#pragma unroll
      for (int i = 0; i < Shape::tiles; ++i) {
        words::template multiply_add<0>(at[block][2 * i], rows, values[i]);
        words::template multiply_add<1>(at[block][2 * i + 1], rows, values[i]);
      }
    }
  }

  /// Rows of a segment as numbers of f32, as sums of several heads take them.
  template <class Memory>
  __device__ __forceinline__ void store_singles(Memory& shared, const chunk_outputs& to_rows,
                                                std::int64_t token, const chunk_segment& rows,
                                                bool finite) const {
    constexpr int chunks = 2 * Shape::tiles;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int of_warp = static_cast<int>(threadIdx.x) / 32 * chunks;
    int* const first = shared.first_not_finite + of_warp * 8;
    auto* const out = static_cast<float*>(to_rows.data) + of_warp * 8;
    const int columns = to_rows.columns - of_warp * 8;
    const ordered_rows rows_out = shared.rows_out;
    __syncwarp();
    // Rows follow each other without gaps: with an even width pairs are at multiples of 8 bytes.
    const bool pairs = to_rows.columns % 2 == 0;
#pragma unroll
    for (int i = 0; i < 8 * chunks; ++i) {
      const int tile = i % chunks, half = i / chunks % 2, block = i / chunks / 2;
      const int row = block * 16 + half * 8 + lane / 4, column = tile * 8 + lane % 4 * 2;
      float x[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        x[j] = to_rows.scale * at[block][tile].at[2 * half + j];
        if (!finite && row >= first[column + j]) x[j] = __int_as_float(0x7fc00000);
      }
      if (row < rows.first || row >= rows.end || column >= columns) continue;
      float* const to = out + rows_out.at(token + row) + column;
      if (pairs) {
        *reinterpret_cast<float2*>(to) = make_float2(x[0], x[1]);
      } else {
        to[0] = x[0];
        if (column + 1 < columns) to[1] = x[1];
      }
    }
    __syncwarp();
    if (finite) return;
    for (int i = lane; i < 8 * chunks; i += 32) first[i] = Shape::tokens;
    __syncwarp();
  }

  /// Rows of a segment, through the warp's part of the values if nobody reads it again.
  template <class Memory>
  __device__ __forceinline__ void store(Memory& shared, const chunk_outputs& to_rows,
                                        unsigned char* values, std::int64_t token,
                                        const chunk_segment& rows, bool finite, bool last) const {
    using value_rows = typename Shape::value_rows;
    constexpr int chunks = 2 * Shape::tiles;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int of_warp = static_cast<int>(threadIdx.x) / 32 * chunks;
    int* const first = shared.first_not_finite + of_warp * 8;
    const std::uint32_t staged = prim::cuda::shared_address(values);
    auto* const out = static_cast<Element*>(to_rows.data);
    const int columns = to_rows.columns - of_warp * 8;
    const ordered_rows rows_out = shared.rows_out;
    __syncwarp();  // The lanes have read the values whose place this takes.
#pragma unroll
    for (int i = 0; i < 8 * chunks; ++i) {
      const int tile = i % chunks, half = i / chunks % 2, block = i / chunks / 2;
      const int row = block * 16 + half * 8 + lane / 4, column = tile * 8 + lane % 4 * 2;
      float x[2] = {to_rows.scale * at[block][tile].at[2 * half],
                    to_rows.scale * at[block][tile].at[2 * half + 1]};
      if (!finite) {
        if (row >= first[column]) x[0] = __int_as_float(0x7fc00000);
        if (row >= first[column + 1]) x[1] = __int_as_float(0x7fc00000);
      }
      const std::uint32_t word = words::pack(x[0], x[1]);
      if (last) {
        prim::cuda::store_shared_4(
            staged +
                value_rows::offset(static_cast<std::uint32_t>(row),
                                   static_cast<std::uint32_t>(of_warp + tile)) +
                static_cast<std::uint32_t>(lane % 4 * 4),
            word);
      } else if (row >= rows.first && row < rows.end) {
        Element* const to = out + rows_out.at(token + row) + of_warp * 8 + column;
        if (column < columns) to[0].bits = static_cast<std::uint16_t>(word);
        if (column + 1 < columns) to[1].bits = static_cast<std::uint16_t>(word >> 16);
      }
    }
    __syncwarp();
    if (!finite) {
      for (int i = lane; i < 8 * chunks; i += 32) first[i] = Shape::tokens;
      __syncwarp();
    }
    if (!last) return;
#pragma unroll
    for (int i = 0; i < 2 * chunks; ++i) {
      const int row = i * (32 / chunks) + lane / chunks, tile = lane % chunks;
      if (row < rows.first || row >= rows.end) continue;
      std::uint32_t of_row[4];
      prim::cuda::load_shared_16(
          of_row, staged + value_rows::offset(static_cast<std::uint32_t>(row),
                                              static_cast<std::uint32_t>(of_warp + tile)));
      Element* const to = out + rows_out.at(token + row) + (of_warp + tile) * 8;
      if (tile * 8 + 8 <= columns) {
        *reinterpret_cast<uint4*>(to) = make_uint4(of_row[0], of_row[1], of_row[2], of_row[3]);
      } else {
        for (int j = 0; j < columns - tile * 8; ++j) {
          to[j].bits = static_cast<std::uint16_t>(of_row[j / 2] >> (j % 2 * 16));
        }
      }
    }
    __syncwarp();
  }
};

/// Zeros in the rows of tokens that belong to no sequence.
template <class Rows>
__device__ __forceinline__ void clear_rows(const Rows& rows, const sequence& all, std::int64_t head,
                                           std::int64_t column, int width) {
  for (std::int64_t token = 0; token < all.length; ++token) {
    const std::int64_t row = row_of(rows, all.entry, all.token(token), head) + column;
    for (int i = static_cast<int>(threadIdx.x); i < width; i += static_cast<int>(blockDim.x)) {
      prim::cuda::put_number(rows.data, rows.type, row + i, 0.0f);
    }
  }
}

}  // namespace tessera::kernels::recurrence::sm80
