// The selection of blocks of f16 and bf16 on the matrix unit: a warp has a token and up to 16 heads
// of a group, whose queries are the rows of its products; tiles of means are those of all tokens of
// a block of threads.
//
//   for each tile of means { scores; softmax }
//   for each tile of means { weights; their sums over heads }; the largest
#pragma once

#include <cstdint>

#include <tessera/kernels/sparse_attention/sm80/branch_scores.hpp>
#include <tessera/kernels/sparse_attention/sm80/branch_tiles.hpp>
#include <tessera/kernels/sparse_attention/sm80/native_sparse_rows.hpp>
#include <tessera/kernels/sparse_attention/sm80/native_sparse_selection.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

/// Tiles of which only scores are wanted: without sums of values twice as many warps have room.
template <class Kernel>
using score_tiles = branch_tiles<Kernel, 64, 16>;

template <class Kernel>
__global__ void __launch_bounds__(score_tiles<Kernel>::block_threads, 1)
    native_sparse_select_tiles(const __grid_constant__ native_sparse_launch launch,
                               std::int64_t items) {
  using tiles = score_tiles<Kernel>;
  constexpr auto branch = sparse_branch::compressed;
  extern __shared__ __align__(1024) unsigned char branch_memory[];
  const std::uint32_t memory = prim::cuda::shared_address(branch_memory);
  const int warp = static_cast<int>(threadIdx.x) / prim::cuda::warp_size;
  float* const sums =
      launch.weights + (std::int64_t{blockIdx.x} * tiles::warps + warp) * launch.most_blocks();
  for (std::int64_t number = blockIdx.x; number < items; number += gridDim.x) {
    const auto item = branch_item<tiles>::of(launch, number);
    if (item.part.is_empty) continue;
    branch_scores<tiles> rows;
    for (std::int64_t of_group = 0; of_group < launch.lists_of_group(); ++of_group) {
      item.load_queries(launch, of_group, rows);
      rows.start();
      item.for_each_tile(launch, branch, false, memory,
                         [&](std::int64_t first, const key_range& own) {
                           rows.take(memory, true, first, own, [](int, float) {});
                         });
      rows.finish();
      item.for_each_tile(launch, branch, false, memory,
                         [&](std::int64_t first, const key_range& own) {
                           rows.sum_heads(memory, first, own, [&](std::int64_t block, float sum) {
                             sums[block] = of_group == 0 ? sum : sums[block] + sum;
                           });
                         });
    }
    __syncwarp();
    if (item.present) store_selection(launch, item.part.tokens, item.token, item.kv_head, sums);
    __syncwarp();
  }
}

}  // namespace tessera::kernels::sparse_attention::sm80
