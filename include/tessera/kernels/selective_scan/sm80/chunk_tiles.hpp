// Tiles of a chunk in shared memory, as the matrix unit takes them, and its decays.
#pragma once

#include <cstdint>

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/selective_scan/sm80/chunks.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space_block.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space_rows.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/shared_tile.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::selective_scan::sm80 {

inline constexpr int product_columns = 64;
inline constexpr int rows_of_chunk = static_cast<int>(chunk_tokens);

using states_tile = prim::cuda::shared_tile<rows_of_chunk, most_states>;       ///< B or C of tokens
using columns_tile = prim::cuda::shared_tile<rows_of_chunk, product_columns>;  ///< x of tokens
using front_tile = prim::cuda::shared_tile<product_columns, most_states>;  ///< states of columns

/// Steps of a chunk, and sums of log decays, to base 2, as two floats.
struct chunk_decays {
  float2 sums[rows_of_chunk];
  float steps[rows_of_chunk];
  float2 end;
  float step_sum;
};

struct states_memory {
  alignas(128) unsigned char b[states_tile::bytes];
  alignas(128) unsigned char high[columns_tile::bytes];
  alignas(128) unsigned char low[columns_tile::bytes];
  chunk_decays decays;
};
struct outputs_memory {
  alignas(128) unsigned char c[states_tile::bytes];
  alignas(128) unsigned char b[states_tile::bytes];
  alignas(128) unsigned char x[columns_tile::bytes];
  alignas(128) unsigned char front[front_tile::bytes];
  chunk_decays decays;
  int first_not_finite[product_columns];
  float skips[product_columns];  ///< D of each column
};

/// True if every row of the call's operands begins at a multiple of 16 bytes and has whole chunks
/// of 16 bytes, and there is a product to gain from.
inline bool products_take(const state_space_kernel_args& args, const state_space_cut& cut) {
  const auto is_aligned = [](const scan_tensor& rows) {
    return reinterpret_cast<std::uintptr_t>(rows.data) % 16 == 0 && rows.entry % 8 == 0 &&
           rows.token % 8 == 0 && rows.head % 8 == 0;
  };
  return cut.carried && args.x.type == dtype::bf16 && args.states % 8 == 0 && args.states > 0 &&
         args.states <= most_states && args.columns % 8 == 0 && is_aligned(args.x) &&
         is_aligned(args.B) && is_aligned(args.C) && (args.norm || is_aligned(args.out));
}

/// 2^(a - b) of sums in two parts.
__device__ __forceinline__ float decay_between(float2 a, float2 b) {
  return prim::cuda::exp2_fast((a.x - b.x) + (a.y - b.y));
}

/// Steps and sums of log decays of a chunk. A log decay below -200 is -200: its power is 0 in any
/// case; to base 2, as the hardware takes it. Behind the last token steps are 0. Has a barrier; the
/// one behind it is the caller's.
__device__ __forceinline__ void load_decays(chunk_decays& to, const state_space_kernel_args& args,
                                            const row_reader<true>& reader, std::int64_t head,
                                            int length) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < rows_of_chunk) {
    to.steps[thread] = thread < length ? step_of(args, reader.raw_step(thread)).step : 0.0f;
  }
  __syncthreads();
  if (thread >= 32) return;
  constexpr int each = rows_of_chunk / 32;
  const double rate = 1.4426950408889634 * static_cast<double>(prim::cuda::number_at(
                                               args.A.data, args.A.type, head * args.A.head));
  double sums[each], sum = 0, all_steps = 0;
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const int token = thread * each + i;
    const auto step = static_cast<double>(to.steps[token]);
    const double decay = token < length ? rate * step : 0.0;
    all_steps += step;
    sum += decay < -200.0 ? -200.0 : decay;
    sums[i] = sum;
  }
  double before = sum;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const double left = __shfl_up_sync(prim::cuda::all_lanes, before, static_cast<unsigned>(step));
    if (thread >= step) before += left;
    all_steps += __shfl_xor_sync(prim::cuda::all_lanes, all_steps, step);
  }
  before -= sum;
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const double total = before + sums[i];
    const float high = static_cast<float>(total);
    const float2 parts = make_float2(high, static_cast<float>(total - static_cast<double>(high)));
    to.sums[thread * each + i] = parts;
    if (thread == 31 && i + 1 == each) to.end = parts;
  }
  if (thread == 0) to.step_sum = static_cast<float>(all_steps);
}

/// Copies `used` 16-byte chunks of each of `count` rows; what is behind them becomes 0.
template <class Element, class Tile>
__device__ __forceinline__ void copy_rows(std::uint32_t to, const void* from, std::int64_t row,
                                          std::int64_t stride, int count, int used) {
  const auto* const elements = static_cast<const Element*>(from) + row;
  for (int at = static_cast<int>(threadIdx.x); at < Tile::rows * Tile::chunks;
       at += block_threads) {
    const int i = at / Tile::chunks, chunk = at % Tile::chunks;
    const bool wanted = i < count && chunk < used;
    prim::cuda::copy_async_16(
        to + Tile::offset(static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(chunk)),
        elements + (wanted ? i * stride + chunk * 8 : 0), wanted ? 16 : 0);
  }
}

/// Two parts of two floats, each a word of bf16.
struct word_parts {
  std::uint32_t high, low;
};
template <class Element>
__device__ __forceinline__ word_parts parts_of(float first, float second) {
  using words = prim::cuda::half_words<Element>;
  const std::uint32_t high = words::pack(first, second);
  const float of_first = words::unpack(static_cast<std::uint16_t>(high));
  const float of_second = words::unpack(static_cast<std::uint16_t>(high >> 16));
  return {high, words::pack(first - of_first, second - of_second)};
}

}  // namespace tessera::kernels::selective_scan::sm80
