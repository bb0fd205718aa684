// What becomes of a block's queries in shared memory before the first products: divided, turned,
// and for elements of 8 bits f16 in another order; and what undoes that behind the products.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm80/softmax.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/warp_tile.hpp>
#include <tessera/kernels/attention/sm80/work_tile.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/code_words.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

/// Two elements of q, or one of f32, divided, and rounded to the type of the pool where that is
/// asked for.
template <class Traits>
__device__ __forceinline__ std::uint32_t divided_word(std::uint32_t word,
                                                      const attention_kernel_args& call) {
  using element = typename Traits::element;
  const auto changed = [&call](float x) {
    x = divided<element>(x, call.q_divisor);
    if constexpr (takes_codes(Traits::config)) {
      if (call.q_as_codes) return prim::cuda::rounded_to_code(call.pool_type, x);
    }
    return x;
  };
  if constexpr (Traits::use_3xtf32) {
    return __float_as_uint(changed(__uint_as_float(word)));
  } else {
    using words = prim::cuda::half_words<element>;
    const float low = words::unpack(static_cast<std::uint16_t>(word));
    const float high = words::unpack(static_cast<std::uint16_t>(word >> 16));
    return words::pack(changed(low), changed(high));
  }
}

/// The largest exponent of f32 of 16 elements that are finite; 0 if there are none.
template <class Element>
__device__ __forceinline__ int largest_exponent(const std::uint32_t (&first)[4],
                                                const std::uint32_t (&second)[4]) {
  using words = prim::cuda::half_words<Element>;
  std::uint32_t most = 0;  // of both halves of words: magnitudes in the order of their bits
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    most = __vmaxu2(most, __vmaxu2(first[i] & 0x7fff7fffu, second[i] & 0x7fff7fffu));
  }
  std::uint32_t largest = max(most & 0xffffu, most >> 16);
  if (largest >= words::exponent) {
    largest = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const std::uint32_t word = i < 8 ? first[i / 2] : second[i / 2 - 4];
      const std::uint32_t magnitude = word >> (i % 2 * 16) & 0x7fffu;
      if (magnitude < words::exponent) largest = max(largest, magnitude);
    }
  }
  return static_cast<int>(__float_as_uint(words::unpack(static_cast<std::uint16_t>(largest))) >>
                          23);
}

/// Makes the block's queries f16 in the order that products with elements of 8 bits take them in
/// (operands.hpp): of 16 columns those from 4t on and from 4t + 2 on go apart, for all t. Each row
/// is multiplied by a power of two, 2^100 at most, that brings its largest number to 2^14 or more;
/// `block.query_units` undoes it and is what products are to be multiplied by, the scale of the
/// keys' head included where nobody asks for the products themselves. Rows that are not used are 0.
template <class Traits, class State>
__device__ __forceinline__ void halve_queries(const launch_args& args, State& block,
                                              std::uint32_t q_tile) {
  using tile = typename Traits::q_tile;
  using words = prim::cuda::half_words<typename Traits::element>;
  using halves = prim::cuda::half_words<f16>;
  constexpr int lanes = tile::row_bytes / 32;  // of a row
  constexpr int rows_of_pass = Traits::threads / lanes;
  static_assert(prim::cuda::warp_size % lanes == 0 && tile::rows % rows_of_pass == 0);
  const auto thread = static_cast<int>(threadIdx.x);
  const bool scaled = args.plain && args.call.k_scales != nullptr;
  const float scale = scaled ? args.call.k_scales[block.work.kv_head] : 1.0f;
  const int used = block.work.used;
  for (int row = thread; row < tile::rows; row += Traits::threads) {
    if (row >= used) block.query_units.of[row] = 1.0f;
  }
#pragma unroll 2
  for (int row0 = 0; row0 < used; row0 += rows_of_pass) {
    // Chunks 2j and 2j + 1 of a row lie side by side, in an order that depends on the row.
    const int row = row0 + thread / lanes;
    const auto at = static_cast<std::uint32_t>(row0 * tile::row_bytes + thread * 32);
    const std::uint32_t odd_row = static_cast<std::uint32_t>(row % 2 * 16);
    const std::uint32_t low = q_tile + at + odd_row;
    const std::uint32_t high = q_tile + at + 16 - odd_row;
    std::uint32_t first[4], second[4];
    prim::cuda::load_shared_16(first, low);
    prim::cuda::load_shared_16(second, high);
    int most = largest_exponent<typename Traits::element>(first, second);
#pragma unroll
    for (int step = 1; step < lanes; step *= 2) {
      most = max(most, __shfl_xor_sync(prim::cuda::all_lanes, most, step));
    }
    const int up = min(127 + 14 - most, 100);
    const float larger =
        copysignf(__uint_as_float(static_cast<std::uint32_t>(127 + up) << 23), scale);
    const auto larger_pair = [&](std::uint32_t word) {
      return halves::pack(words::unpack(static_cast<std::uint16_t>(word)) * larger,
                          words::unpack(static_cast<std::uint16_t>(word >> 16)) * larger);
    };
    const std::uint32_t even[4] = {larger_pair(first[0]), larger_pair(first[2]),
                                   larger_pair(second[0]), larger_pair(second[2])};
    const std::uint32_t odd[4] = {larger_pair(first[1]), larger_pair(first[3]),
                                  larger_pair(second[1]), larger_pair(second[3])};
    prim::cuda::store_shared_16(low, even);
    prim::cuda::store_shared_16(high, odd);
    if (thread % lanes == 0 && row < used) {
      block.query_units.of[row] =
          __uint_as_float(static_cast<std::uint32_t>(127 - up) << 23) * fabsf(scale);
    }
  }
}

/// What products with a row become powers of 2 by, once modifiers have seen them (`unit_scores`) or
/// at once. A scale of 0 would make NaN of hidden scores.
template <class State>
__device__ __forceinline__ float log2_scale_of_row(const launch_args& args, const State& block,
                                                   int row) {
  const float scale = args.log2_scale * (args.plain ? block.query_units.of[row] : 1.0f);
  return scale < least_log2_scale ? least_log2_scale : scale;
}
template <class Traits, class State>
__device__ __forceinline__ void load_log2_scales(warp_tile<Traits, State>& warp) {
#pragma unroll
  for (int m = 0; m < Traits::row_tiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_of_thread<Traits>(static_cast<int>(threadIdx.x), m, half);
      warp.log2_scales[m][half] = log2_scale_of_row(warp.args, warp.block, row);
    }
  }
}

/// The products as if queries had not been changed.
template <class Traits, class State>
__device__ __forceinline__ void unit_scores(warp_tile<Traits, State>& warp) {
#pragma unroll
  for (int m = 0; m < Traits::row_tiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_of_thread<Traits>(static_cast<int>(threadIdx.x), m, half);
      const float unit = warp.block.query_units.of[row];
#pragma unroll
      for (int n = 0; n < Traits::key_tiles; ++n) {
        warp.scores[m][n].at[2 * half] *= unit;
        warp.scores[m][n].at[2 * half + 1] *= unit;
      }
    }
  }
}

/// Divides the block's queries in shared memory and turns their signs, where that is asked for,
/// and permutes them for elements of 8 bits, once.
template <class Traits, class State>
__device__ __forceinline__ void change_queries(const launch_args& args, State& block,
                                               std::uint32_t q_tile) {
  if (!block.changes_queries) return;
  const std::uint32_t signs = Traits::use_3xtf32 ? 0x80000000u : 0x80008000u;
  // Of elements of 8 bits `halve_queries` does all there is where nothing else is asked for.
  const bool as_they_are =
      Traits::codes && !args.negative_scale && args.call.q_divisor == 1.0f && !args.call.q_as_codes;
  for (std::uint32_t at = threadIdx.x * 16; !as_they_are && at < Traits::q_tile::bytes;
       at += Traits::threads * 16) {
    std::uint32_t four[4];
    prim::cuda::load_shared_16(four, q_tile + at);
    for (std::uint32_t& word : four) {
      if (Traits::paged) word = divided_word<Traits>(word, args.call);
      if (args.negative_scale) word ^= signs;
    }
    prim::cuda::store_shared_16(q_tile + at, four);
  }
  if constexpr (Traits::codes) {
    if (!as_they_are) sync_tiles<Traits>();
    halve_queries<Traits>(args, block, q_tile);
  }
  sync_tiles<Traits>();
  if (threadIdx.x == 0) block.changes_queries = false;
}

/// Queries of the warp to registers, where they are kept there.
template <class Traits, class State>
__device__ __forceinline__ void load_queries(warp_tile<Traits, State>& warp, std::uint32_t q_tile) {
  if constexpr (Traits::shape.threads.q_in_registers) {
#pragma unroll
    for (int step = 0; step < Traits::dim_groups; ++step) {
      load_q<Traits>(warp.q[step], q_tile, threadIdx.x, step);
    }
  }
}

}  // namespace tessera::kernels::attention::sm80
