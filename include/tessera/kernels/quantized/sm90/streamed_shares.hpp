// Tiles that several blocks share: which blocks, what each of them leaves, and the sums of that.
#pragma once

#include <cstdint>

#include <tessera/kernels/quantized/sm90/streamed_stages.hpp>
#include <tessera/prim/cuda/arrivals.hpp>

namespace tessera::kernels::quantized::sm90 {

/// The blocks that share a tile behind the waves, and into how many parts its sums are cut: each of
/// the blocks that end last has one.
struct tile_share {
  int first, last, parts;

  __device__ __forceinline__ tile_share(const streamed_args& args, int tile, int most_parts)
      : first(block_of(args, tile * args.stages_of_tile)),
        last(block_of(args, (tile + 1) * args.stages_of_tile - 1)),
        parts(min(max(last - first, 1), min(most_parts, 8))) {}

  /// By one thread, after what its block has left: the parts that it is to sum up.
  __device__ __forceinline__ unsigned arrive(const streamed_args& args, int tile) const {
    constexpr long long patience = 1 << 15;
    return prim::cuda::arrivals(streamed_word(args.arrivals, tile), last - first + 1, parts)
        .arrive(patience);
  }
  /// Four sums of what the blocks have left, in their order: `left_by(block)` is where.
  template <class LeftBy>
  __device__ __forceinline__ float4 sum_of_left(const LeftBy& left_by) const {
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 4
    for (int block = first; block <= last; ++block) {
      const float4 left = __ldcg(left_by(block));
      sum.x += left.x, sum.y += left.y, sum.z += left.z, sum.w += left.w;
    }
    return sum;
  }
};

/// Where a block leaves sums of a tile of so many. `begins`: with the first stage of the tile.
__device__ __forceinline__ float* sums_left_by(const streamed_args& args, int block, bool begins,
                                               int of_tile) {
  return args.partial + (std::int64_t{block} * 2 + (begins ? 1 : 0)) * of_tile;
}

}  // namespace tessera::kernels::quantized::sm90
