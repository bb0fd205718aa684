// A mask of blocks made on the device, from the functor that kernels are asked with.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/sparse_attention/block_mask.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

namespace kernels::sparse_attention::sm80 {

inline constexpr int block_mask_threads = 128;

/// How much each block shows, [batch][heads][rows][columns]: a thread block for each, whose threads
/// ask about pairs side by side, unless the functor speaks for tiles.
template <class Mask>
__global__ void __launch_bounds__(block_mask_threads)
    write_block_mask(const __grid_constant__ block_grid grid, const Mask mask,
                     std::uint8_t* blocks) {
  for (std::int64_t block = blockIdx.x; block < grid.blocks(); block += gridDim.x) {
    const prim::score_tile tile = grid.tile_of(block);
    prim::tile_visibility shown = prim::tile_visibility::full;
    if constexpr (prim::classifies_tiles<Mask>) {
      shown = mask.classify(tile);
    } else {
      const int thread = static_cast<int>(threadIdx.x);
      const bool asks = thread < block_grid::pairs_of(tile);
      const auto own = asks ? shown_pairs(mask, grid, tile, thread, block_mask_threads) : shown;
      const bool some = __syncthreads_or(asks && own != prim::tile_visibility::skip) != 0;
      const bool all = __syncthreads_and(!asks || own == prim::tile_visibility::full) != 0;
      shown = all    ? prim::tile_visibility::full
              : some ? prim::tile_visibility::partial
                     : prim::tile_visibility::skip;
    }
    if (threadIdx.x == 0) blocks[block] = static_cast<std::uint8_t>(shown_of(shown));
  }
}

}  // namespace kernels::sparse_attention::sm80

/// Queues the making of a mask of blocks from a functor: grid.blocks() bytes of the current device,
/// which as a tensor [batch, heads, rows, columns] are the block_mask of blocksparse attention.
template <class Mask>
status write_block_mask(const block_grid& grid, const Mask& mask, std::uint8_t* blocks,
                        void* stream) {
  if (status done = check_grid(grid); !done) return done;
  if (grid.blocks() == 0) return {};
  return kernels::cuda::launched(prim::cuda::launch_kernel(
      &kernels::sparse_attention::sm80::write_block_mask<Mask>,
      kernels::cuda::grid_of(grid.blocks()), kernels::sparse_attention::sm80::block_mask_threads, 0,
      static_cast<cudaStream_t>(stream), false, grid, mask, blocks));
}

}  // namespace tessera
