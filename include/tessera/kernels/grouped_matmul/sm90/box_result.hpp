// The end of a tile whose sums need only be rounded: a warp lays them in panels in shared memory,
// from where the copy unit writes whole rows of 128 bytes while the next tile is multiplied.
#pragma once

#include <cstdint>

#include <cuda.h>

#include <tessera/kernels/grouped_matmul/sm80/product.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/box_store.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::grouped_matmul::sm90 {

/// Rows of a box: those that a warp has sums of.
inline constexpr int box_rows = 16;

/// Whether a result is stored as it is summed up, where the copy unit addresses it: then its map.
inline bool make_result_map(CUtensorMap& map, const sm80::product_args& args, dtype type) {
  const grouped_matrix& to = args.to;
  if (to.data == nullptr || to.type != type || args.bias.data != nullptr ||
      args.init.data != nullptr || args.finish.exists || to.row < 0 || to.group < 0) {
    return false;
  }
  // The copy unit writes 16 bytes at a time, those behind a row that ends inside of them too.
  if (args.columns * static_cast<std::int64_t>(size_of(type)) % 16 != 0) return false;
  const bool by_table = args.table.rows != nullptr && !args.sums_rows;
  return prim::cuda::make_tensor_map(
      map, {to.data,
            {args.columns, args.rows, by_table || to.group == 0 ? 1 : args.matrices, 1},
            {1, to.row, to.group, 0},
            {prim::cuda::panel_columns, box_rows, 1, 1}});
}

/// Whether no row of a warpgroup's is another matrix's. Rows behind the result are not written.
__device__ __forceinline__ bool box_is_whole(const sm80::product_args& args,
                                             const sm80::tile_place& at, int first_row) {
  const bool by_table = args.table.rows != nullptr && !args.sums_rows;
  return !by_table || at.row + first_row + 64 <= at.rows;
}

/// Stores the sums of a warpgroup, whose rows of the tile begin at `first_row`. `shared` is where
/// the block has `Panels` panels for each warpgroup.
template <class Element, int Panels, int Sums>
__device__ __forceinline__ void store_boxes(const CUtensorMap& map, const sm80::product_args& args,
                                            const sm80::tile_place& at, int first_row,
                                            std::uint32_t shared, const float (&sums)[Sums]) {
  using words = prim::cuda::half_words<Element>;
  constexpr int box_bytes = box_rows * prim::cuda::panel_row_bytes;
  const auto warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const std::uint32_t boxes = shared + warp * (Panels * box_bytes);
  // Lane l gives the address of row l % 16 of the first eight columns or of the next.
  const std::uint32_t line = lane % box_rows;
  const std::int64_t of_result = args.sums_rows ? 0 : at.first;
  const auto row =
      static_cast<int>(of_result + at.row + first_row) + static_cast<int>(warp) % 4 * box_rows;
#pragma unroll
  for (int first = 0; first < Sums / 32; first += Panels) {
    if (lane == 0) prim::cuda::wait_for_reads_of_stores();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < Panels * 4; ++i) {
      std::uint32_t word[4];
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const float* const two = sums + first * 32 + i * 8 + part * 2;
        word[part] = words::pack(two[0], two[1]);
      }
      const std::uint32_t chunk = i % 4 * 2 + lane / box_rows;
      prim::cuda::store_matrices(
          boxes + i / 4 * box_bytes + line * prim::cuda::panel_row_bytes + (chunk ^ line % 8) * 16,
          word);
    }
    prim::cuda::show_writes_to_async_units();
    __syncwarp();
    if (lane != 0) continue;
#pragma unroll
    for (int panel = 0; panel < Panels; ++panel) {
      prim::cuda::store_box(
          map, boxes + panel * box_bytes,
          {static_cast<int>(at.column) + (first + panel) * 64, row,
           args.sums_rows || args.table.rows == nullptr ? static_cast<int>(at.stored_matrix()) : 0,
           0});
    }
    prim::cuda::commit_stores();
  }
}

}  // namespace tessera::kernels::grouped_matmul::sm90
