// state_space_v2 of bf16 on the matrix unit. With G_t the sum of the log decays of a chunk up to
// token t, S the states in front of the chunk,
//
//   y_t = exp(G_t) S C_t + sum over j <= t of (C_t . B_j) exp(G_t - G_j) dt_j x_j + D x_t
//   states of the chunk alone = sum over t of exp(G_end - G_t) dt_t x_t B_t^T
//
// `chunk_states` makes the second, `chunk_outputs` the first; between them goes `carry_states`. A
// block has a chunk of up to 64 columns of a head, a warp 16 tokens (outputs) or 16 states.
//
// Operands that are no inputs are rounded to bf16: weights of tokens and the states that are read
// once; scaled x, which goes into states, is a sum of two parts. A column's x that is not finite is
// 0 in the operand, which later tokens' rows alone may see; those of the column are NaN.
#pragma once

#include <cstdint>

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/selective_scan/sm80/chunk_tiles.hpp>
#include <tessera/kernels/selective_scan/sm80/chunks.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space_block.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space_rows.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/shared_tile.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::selective_scan::sm80 {

/// x of a chunk times what is left of it at the end, in two parts.
template <class Element>
__device__ __forceinline__ void scale_columns(states_memory& shared,
                                              const state_space_kernel_args& args, std::int64_t row,
                                              int length, int columns) {
  using words = prim::cuda::half_words<Element>;
  const auto* const x = static_cast<const Element*>(args.x.data) + row;
  const std::uint32_t high = prim::cuda::shared_address(shared.high);
  const std::uint32_t low = prim::cuda::shared_address(shared.low);
  for (int at = static_cast<int>(threadIdx.x); at < rows_of_chunk * columns_tile::chunks;
       at += block_threads) {
    const int i = at / columns_tile::chunks, chunk = at % columns_tile::chunks;
    uint4 raw = make_uint4(0, 0, 0, 0);
    if (i < length && chunk * 8 < columns) {
      raw = *reinterpret_cast<const uint4*>(x + i * args.x.token + chunk * 8);
    }
    const float weight =
        shared.decays.steps[i] * decay_between(shared.decays.end, shared.decays.sums[i]);
    const std::uint32_t given[4] = {raw.x, raw.y, raw.z, raw.w};
    std::uint32_t of_high[4], of_low[4];
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      const word_parts parts =
          parts_of<Element>(weight * words::unpack(static_cast<std::uint16_t>(given[word])),
                            weight * words::unpack(static_cast<std::uint16_t>(given[word] >> 16)));
      of_high[word] = parts.high;
      of_low[word] = parts.low;
    }
    const std::uint32_t place =
        columns_tile::offset(static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(chunk));
    prim::cuda::store_shared_16(high + place, of_high);
    prim::cuda::store_shared_16(low + place, of_low);
  }
}

/// What a block of the two kernels works on: up to product_columns channels of a head of a chunk,
/// which may not exist.
struct product_block {
  std::int64_t slot;
  scan_chunk chunk;
  channel_block channels;

  __device__ product_block(const state_space_kernel_args& args, std::int64_t blocks_of_head)
      : slot(blockIdx.x / (args.heads * blocks_of_head)), chunk(chunk_at(args.sequences, slot)) {
    const std::int64_t first = blockIdx.x % blocks_of_head * product_columns;
    channels = {blockIdx.x % (args.heads * blocks_of_head) / blocks_of_head, first,
                static_cast<int>(min(args.columns - first, std::int64_t{product_columns}))};
  }
};

/// The states of each chunk that starts from 0, and the sum of its steps.
template <class Element>
__global__ void __launch_bounds__(block_threads, 2)
    chunk_states(__grid_constant__ const state_space_launch all, std::int64_t blocks_of_head) {
  using prim::cuda::accumulator;
  using words = prim::cuda::half_words<Element>;
  extern __shared__ __align__(128) unsigned char memory[];
  states_memory& shared = *reinterpret_cast<states_memory*>(memory);
  const state_space_kernel_args& args = all.call;
  const product_block of(args, blocks_of_head);
  const scan_chunk& chunk = of.chunk;
  if (!chunk.exists) return;
  const auto [head, first, columns] = of.channels;
  const row_reader<true> reader(all, chunk, of.channels);
  const std::uint32_t b = prim::cuda::shared_address(shared.b);
  copy_rows<Element, states_tile>(
      b, args.B.data, row_of(args.B, chunk.entry, chunk.begin, head / args.heads_per_group),
      args.B.token, chunk.length, static_cast<int>(args.states / 8));
  prim::cuda::commit_copies();
  load_decays(shared.decays, args, reader, head, chunk.length);
  __syncthreads();
  scale_columns<Element>(shared, args, row_of(args.x, chunk.entry, chunk.begin, head) + first,
                         chunk.length, columns);
  prim::cuda::wait_copies<0>();
  __syncthreads();

  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp * 16 < args.states) {
    accumulator sums[product_columns / 8] = {};
    const std::uint32_t of_b = b + states_tile::lane_of_b(lane);
    const std::uint32_t of_high =
        prim::cuda::shared_address(shared.high) + columns_tile::lane_of_a(lane);
    const std::uint32_t of_low =
        prim::cuda::shared_address(shared.low) + columns_tile::lane_of_a(lane);
    const int steps = (chunk.length + 15) / 16;
    for (int step = 0; step < steps; ++step) {
      prim::cuda::fragment_a states;
      prim::cuda::load_matrices_transposed(states.reg,
                                           states_tile::step(of_b, step, static_cast<int>(warp)));
#pragma unroll
      for (int pair = 0; pair < product_columns / 16; ++pair) {
        prim::cuda::fragment_b2 x;
        prim::cuda::load_matrices_transposed(x.reg, columns_tile::step(of_high, step, pair));
        words::template multiply_add<0>(sums[2 * pair], states, x);
        words::template multiply_add<1>(sums[2 * pair + 1], states, x);
        prim::cuda::load_matrices_transposed(x.reg, columns_tile::step(of_low, step, pair));
        words::template multiply_add<0>(sums[2 * pair], states, x);
        words::template multiply_add<1>(sums[2 * pair + 1], states, x);
      }
    }
    float* const to =
        all.memory.states +
        (of.slot * all.cut.channels_of_call + head * args.columns + first) * all.cut.state_stride;
#pragma unroll
    for (int tile = 0; tile < product_columns / 8; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int n = static_cast<int>(warp * 16 + lane / 4) + i / 2 * 8;
        const int column = tile * 8 + static_cast<int>(lane % 4) * 2 + i % 2;
        if (n < args.states && column < columns) {
          to[column * all.cut.state_stride + n] = sums[tile].at[i];
        }
      }
    }
  }
  if (threadIdx.x == 0 && first == 0) {
    all.memory.step_sums[of.slot * args.heads + head] = shared.decays.step_sum;
  }
}

/// States in front of the chunk.
template <class Element>
__device__ __forceinline__ void load_front(outputs_memory& shared, const float* from,
                                           std::int64_t stride, int states, int columns) {
  using words = prim::cuda::half_words<Element>;
  const std::uint32_t front = prim::cuda::shared_address(shared.front);
  constexpr int fours = most_states / 4;
  for (int at = static_cast<int>(threadIdx.x); at < product_columns * fours; at += block_threads) {
    const int column = at / fours, n = at % fours * 4;
    float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (column < columns && n < states) {
      x = *reinterpret_cast<const float4*>(from + column * stride + n);
    }
    const std::uint32_t place =
        front_tile::offset(static_cast<std::uint32_t>(column), static_cast<std::uint32_t>(n / 8)) +
        static_cast<std::uint32_t>(n % 8 * 2);
    prim::cuda::store_shared_8(front + place, words::pack(x.x, x.y), words::pack(x.z, x.w));
  }
}
/// The first token of each column whose x is not finite, which becomes 0.
template <class Element>
__device__ __forceinline__ void find_not_finite(outputs_memory& shared) {
  const std::uint32_t x = prim::cuda::shared_address(shared.x);
  bool any = false;
  for (int at = static_cast<int>(threadIdx.x); at < rows_of_chunk * columns_tile::chunks;
       at += block_threads) {
    std::uint32_t words[4];
    prim::cuda::load_shared_16(
        words, x + columns_tile::offset(static_cast<std::uint32_t>(at / columns_tile::chunks),
                                        static_cast<std::uint32_t>(at % columns_tile::chunks)));
#pragma unroll
    for (const std::uint32_t word : words) any = any || prim::cuda::any_not_finite<Element>(word);
  }
  const int column = static_cast<int>(threadIdx.x);
  const bool somewhere = __syncthreads_or(any ? 1 : 0) != 0;
  if (column >= product_columns) return;
  shared.first_not_finite[column] = rows_of_chunk;
  for (int i = rows_of_chunk - 1; somewhere && i >= 0; --i) {
    auto* const element = reinterpret_cast<std::uint16_t*>(
        shared.x +
        columns_tile::offset(static_cast<std::uint32_t>(i),
                             static_cast<std::uint32_t>(column / 8)) +
        column % 8 * 2);
    if (!prim::cuda::any_not_finite<Element>(*element)) continue;
    shared.first_not_finite[column] = i;
    *element = 0;
  }
}

/// What a warp has of y, tokens 16 `warp` on, becomes outputs or columns of the workspace.
template <class Element>
__device__ __forceinline__ void store_outputs(const state_space_launch& all, outputs_memory& shared,
                                              const row_reader<true>& reader,
                                              prim::cuda::accumulator (&y)[product_columns / 8],
                                              int warp, int lane, int length, int columns) {
  const state_space_kernel_args& args = all.call;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = warp * 16 + lane / 4 + half * 8;
    if (i >= length) continue;
#pragma unroll
    for (int tile = 0; tile < product_columns / 8; ++tile) {
      const int column = tile * 8 + lane % 4 * 2;
      if (column >= columns) continue;
      float out[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const auto* const x = reinterpret_cast<const std::uint16_t*>(
            shared.x +
            columns_tile::offset(static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(tile)));
        out[j] = fmaf(shared.skips[column + j],
                      prim::cuda::half_words<Element>::unpack(x[column % 8 + j]),
                      y[tile].at[2 * half + j]);
        if (i >= shared.first_not_finite[column + j]) out[j] = __int_as_float(0x7fc00000);
      }
      if (args.norm) {
        *reader.column_at(i, column) = out[0];
        *reader.column_at(i, column + 1) = out[1];
        continue;
      }
      if (args.z.data != nullptr) {
        out[0] *= silu(reader.element_of(args.z, i, column)).value;
        out[1] *= silu(reader.element_of(args.z, i, column + 1)).value;
      }
      *reinterpret_cast<std::uint32_t*>(reader.template elements_of<Element>(args.out, i) +
                                        column) =
          prim::cuda::half_words<Element>::pack(out[0], out[1]);
    }
  }
}

template <class Element>
__global__ void __launch_bounds__(block_threads, 2)
    chunk_outputs(__grid_constant__ const state_space_launch all, std::int64_t blocks_of_head) {
  using prim::cuda::accumulator;
  using words = prim::cuda::half_words<Element>;
  extern __shared__ __align__(128) unsigned char memory[];
  outputs_memory& shared = *reinterpret_cast<outputs_memory*>(memory);
  const state_space_kernel_args& args = all.call;
  const product_block of(args, blocks_of_head);
  const scan_chunk& chunk = of.chunk;
  if (!chunk.exists) return;
  const auto [head, first, columns] = of.channels;
  const row_reader<true> reader(all, chunk, of.channels);
  const std::uint32_t c = prim::cuda::shared_address(shared.c);
  const std::uint32_t b = prim::cuda::shared_address(shared.b);
  const std::uint32_t x = prim::cuda::shared_address(shared.x);
  const std::int64_t group = head / args.heads_per_group;
  const int used = static_cast<int>(args.states / 8);
  copy_rows<Element, states_tile>(c, args.C.data, row_of(args.C, chunk.entry, chunk.begin, group),
                                  args.C.token, chunk.length, used);
  copy_rows<Element, states_tile>(b, args.B.data, row_of(args.B, chunk.entry, chunk.begin, group),
                                  args.B.token, chunk.length, used);
  copy_rows<Element, columns_tile>(x, args.x.data,
                                   row_of(args.x, chunk.entry, chunk.begin, head) + first,
                                   args.x.token, chunk.length, columns / 8);
  prim::cuda::commit_copies();
  load_front<Element>(
      shared,
      all.memory.states +
          (of.slot * all.cut.channels_of_call + head * args.columns + first) * all.cut.state_stride,
      all.cut.state_stride, static_cast<int>(args.states), columns);
  if (static_cast<int>(threadIdx.x) < columns) {
    shared.skips[threadIdx.x] = parameter_at(args.D, head, first + threadIdx.x);
  }
  load_decays(shared.decays, args, reader, head, chunk.length);
  prim::cuda::wait_copies<0>();
  __syncthreads();
  find_not_finite<Element>(shared);
  __syncthreads();

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const auto unsigned_lane = static_cast<std::uint32_t>(lane);
  if (warp * 16 >= chunk.length) return;
  const int depth = static_cast<int>((args.states + 15) / 16);
  const std::uint32_t of_c = c + states_tile::lane_of_a(unsigned_lane);
  const std::uint32_t of_b = b + states_tile::lane_of_b(unsigned_lane);
  const std::uint32_t of_x = x + columns_tile::lane_of_a(unsigned_lane);
  const std::uint32_t of_front =
      prim::cuda::shared_address(shared.front) + front_tile::lane_of_b(unsigned_lane);

  // From the states in front: S C, and what is left of them.
  accumulator y[product_columns / 8] = {};
#pragma unroll 2
  for (int k = 0; k < depth; ++k) {
    prim::cuda::fragment_a reads;
    prim::cuda::load_matrices(reads.reg, states_tile::step(of_c, warp, k));
#pragma unroll
    for (int pair = 0; pair < product_columns / 16; ++pair) {
      prim::cuda::fragment_b2 front;
      prim::cuda::load_matrices(front.reg, front_tile::step(of_front, pair, k));
      words::template multiply_add<0>(y[2 * pair], reads, front);
      words::template multiply_add<1>(y[2 * pair + 1], reads, front);
    }
  }
  const int row = warp * 16 + lane / 4;
  const float2 of_rows[2] = {shared.decays.sums[row], shared.decays.sums[row + 8]};
  const float left[2] = {prim::cuda::exp2_fast(of_rows[0].x + of_rows[0].y),
                         prim::cuda::exp2_fast(of_rows[1].x + of_rows[1].y)};
#pragma unroll
  for (accumulator& tile : y) {
#pragma unroll
    for (int i = 0; i < 4; ++i) tile.at[i] *= left[i / 2];
  }
  // From the tokens of the chunk, 32 at a time.
  for (int tokens = 0; tokens <= warp; tokens += 2) {
    accumulator scores[4] = {};
#pragma unroll 2
    for (int k = 0; k < depth; ++k) {
      prim::cuda::fragment_a reads;
      prim::cuda::fragment_b2 keys;
      prim::cuda::load_matrices(reads.reg, states_tile::step(of_c, warp, k));
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        prim::cuda::load_matrices(keys.reg, states_tile::step(of_b, tokens + pair, k));
        words::template multiply_add<0>(scores[2 * pair], reads, keys);
        words::template multiply_add<1>(scores[2 * pair + 1], reads, keys);
      }
    }
#pragma unroll
    for (int tile = 0; tile < 4; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = tokens * 16 + tile * 8 + lane % 4 * 2 + i % 2;
        const float decay = decay_between(of_rows[i / 2], shared.decays.sums[token]);
        const float weight = scores[tile].at[i] * (decay * shared.decays.steps[token]);
        scores[tile].at[i] = token <= row + i / 2 * 8 ? weight : 0.0f;
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      prim::cuda::fragment_a weights;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const accumulator& of_tile = scores[2 * half + i / 2];
        weights.reg[i] = words::pack(of_tile.at[i % 2 * 2], of_tile.at[i % 2 * 2 + 1]);
      }
#pragma unroll
      for (int pair = 0; pair < product_columns / 16; ++pair) {
        prim::cuda::fragment_b2 values;
        prim::cuda::load_matrices_transposed(values.reg,
                                             columns_tile::step(of_x, tokens + half, pair));
        words::template multiply_add<0>(y[2 * pair], weights, values);
        words::template multiply_add<1>(y[2 * pair + 1], weights, values);
      }
    }
  }
  store_outputs<Element>(all, shared, reader, y, warp, lane, chunk.length, columns);
}

}  // namespace tessera::kernels::selective_scan::sm80
