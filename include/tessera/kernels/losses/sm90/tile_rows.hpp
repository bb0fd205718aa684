// Sums of tiles of logits become what is known of tokens.
#pragma once

#include <cstdint>

#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/kernels/losses/sm80/entropy.hpp>
#include <tessera/kernels/losses/sm80/linear_rows.hpp>
#include <tessera/kernels/losses/sm80/tokens.hpp>
#include <tessera/kernels/losses/sm90/logit_tiles.hpp>

namespace tessera::kernels::losses::sm90 {

/// The classes of tokens that count, one behind the other.
static __global__ void __launch_bounds__(sm80::token_threads)
    place_targets(const loss_tokens tokens, const sm80::active_tokens active,
                  std::int32_t* targets) {
  const std::int64_t place = std::int64_t{blockIdx.x} * sm80::token_threads + threadIdx.x;
  if (place >= *active.count) return;
  targets[place] = static_cast<std::int32_t>(
      sm80::target_of(tokens, sm80::token_place(tokens, active.rows[place])));
}

/// Classes [first, first + count) in tiles of so many columns.
struct tiled_classes {
  std::int64_t first = 0, count = 0;
  int columns = 256;
};

inline constexpr int merging_tokens = 32, merging_warps = 8;

/// Adds the tiles of some classes to what is known of tokens; the first classes begin it. A block
/// has a token in each lane, a warp every eighth tile.
static __global__ void __launch_bounds__(merging_tokens* merging_warps)
    merge_tiles(const tile_sums from, const tiled_classes classes, const sm80::active_tokens active,
                const std::int32_t* targets, sm80::linear_row* known) {
  __shared__ sm80::logit_sums of_warps[merging_warps][merging_tokens];
  __shared__ float before_of_warps[merging_warps][merging_tokens];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const std::int64_t row = std::int64_t{blockIdx.x} * merging_tokens + lane;
  const bool exists = row < *active.count;
  const std::int64_t target = exists ? targets[row] - classes.first : -1;
  const std::int64_t tiles = (classes.count + classes.columns - 1) / classes.columns;
  const bool inside = target >= 0 && target < classes.count;
  const std::int64_t target_tile = inside ? target / classes.columns : target < 0 ? -1 : tiles;
  sm80::logit_sums own;
  float before = minus_infinity;
#pragma unroll 4
  for (std::int64_t tile = warp; exists && tile < tiles; tile += merging_warps) {
    const float2 sums = from.sums[tile * from.tokens + row];
    sm80::logit_sums of_tile{.maximum = sums.x, .powers = sums.y};
    if (from.differences != nullptr) {
      const std::int64_t left = classes.count - tile * classes.columns;
      of_tile.differences = from.differences[tile * from.tokens + row];
      of_tile.count = static_cast<float>(left < classes.columns ? left : classes.columns);
    }
    own.merge(of_tile);
    if (tile < target_tile) before = fmaxf(before, sums.x);
  }
  of_warps[warp][lane] = own;
  before_of_warps[warp][lane] = before;
  __syncthreads();
  if (warp != 0 || !exists) return;
  sm80::linear_row all;
  if (classes.first != 0) all = known[row];
  for (int w = 0; w < merging_warps; ++w) {
    all.sums.merge(of_warps[w][lane]);
    all.before = fmaxf(all.before, before_of_warps[w][lane]);
  }
  if (inside) {
    all.of_target = from.of_target[row];
    all.before = fmaxf(all.before, from.before[row]);
  }
  known[row] = all;
}

}  // namespace tessera::kernels::losses::sm90
