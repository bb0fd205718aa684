// Tiles of a chunk of 64 tokens in shared memory, as the matrix unit takes them, and the decays of
// its tokens.
#pragma once

#include <cstdint>

#include <tessera/kernels/recurrence/common/sequence.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/shared_tile.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::recurrence::sm80 {

/// A warp has 16 `Tiles` columns of a state and all of its channels.
template <int Keys, int Tiles, int Warps>
struct chunk_shape {
  static constexpr int tokens = 64;
  static constexpr int keys = Keys;
  static constexpr int tiles = Tiles;
  static constexpr int warps = Warps;
  static constexpr int threads = warps * 32;
  static constexpr int columns = warps * Tiles * 16;
  using key_rows = prim::cuda::shared_tile<tokens, Keys>;
  using value_rows = prim::cuda::shared_tile<tokens, columns>;
  using weight_rows = prim::cuda::shared_tile<tokens, tokens>;
};

/// Decays of a chunk's tokens, to base 2: the sum up to each token, and the powers of what is left
/// of the state in front of the chunk behind a token, and of a token at the end.
struct alignas(16) head_decays {
  float sums[64], front[64], rest[64];
  float whole;  ///< what is left of the state in front behind the chunk
};
/// Rows of a head in the order of the recurrence.
struct ordered_rows {
  std::int64_t first = 0, step = 0;  ///< in elements

  template <class Rows>
  static __device__ __forceinline__ ordered_rows of(const Rows& rows, const sequence& all,
                                                    std::int64_t head) {
    return {row_of(rows, all.entry, all.token(0), head), all.reverse ? -rows.token : rows.token};
  }
  __device__ __forceinline__ std::int64_t at(std::int64_t token) const {
    return first + token * step;
  }
};

/// A log decay to base 2. Below 2^-64 a decay is as good as 0: what it leaves is lost in 16 bits.
__device__ __forceinline__ float log2_decay(float log_decay) {
  const float x = log_decay * 1.44269504088896f;
  return x < -64.0f ? -64.0f : x;
}

/// Starts to copy `count` rows of `columns` elements; what is behind them becomes 0.
template <class Element, class Tile, int Threads>
__device__ __forceinline__ void copy_rows(std::uint32_t to, const void* from,
                                          const ordered_rows& rows, std::int64_t token, int count,
                                          int columns) {
  constexpr int apart = Threads / Tile::chunks;
  static_assert(apart % 8 == 0);
  const unsigned thread = prim::cuda::thread_index();
  const unsigned chunk = thread % Tile::chunks;
  const int row = static_cast<int>(thread / Tile::chunks);
  const int bytes = min(max(columns - static_cast<int>(chunk) * 8, 0), 8) * 2;
  to += Tile::offset(static_cast<std::uint32_t>(row), chunk);
  const auto* next = static_cast<const Element*>(from) + rows.at(token + row) + chunk * 8;
  if (count >= Tile::rows && columns >= Tile::width) {
#pragma unroll
    for (int i = 0; i < Tile::rows; i += apart) {
      prim::cuda::copy_async_16(to + static_cast<std::uint32_t>(i) * Tile::row_bytes, next);
      next += apart * rows.step;
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < Tile::rows; i += apart) {
    const bool wanted = row + i < count && bytes > 0;
    prim::cuda::copy_async_16(to + static_cast<std::uint32_t>(i) * Tile::row_bytes,
                              wanted ? next : static_cast<const Element*>(from),
                              wanted ? static_cast<std::uint32_t>(bytes) : 0);
    next += apart * rows.step;
  }
}

/// The decays of a chunk, by one warp: a lane has two tokens; what a token adds to the state is
/// multiplied by 2^`log2_token_scale`.
__device__ __forceinline__ void sum_head_decays(head_decays& to, float2 decays,
                                                float log2_token_scale = 0.0f) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float sum = decays.x + decays.y;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float left = __shfl_up_sync(prim::cuda::all_lanes, sum, static_cast<unsigned>(step));
    if (lane >= step) sum += left;
  }
  const float end = __shfl_sync(prim::cuda::all_lanes, sum, 31);
  const float before = __shfl_up_sync(prim::cuda::all_lanes, sum, 1);
  const float first = lane == 0 ? decays.x : before + decays.x;
  const float both[2] = {first, sum};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    to.sums[2 * lane + i] = both[i];
    to.front[2 * lane + i] = prim::cuda::exp2_fast(both[i]);
    to.rest[2 * lane + i] = prim::cuda::exp2_fast(end - both[i] + log2_token_scale);
  }
  if (lane == 31) to.whole = prim::cuda::exp2_fast(end);
}

}  // namespace tessera::kernels::recurrence::sm80
