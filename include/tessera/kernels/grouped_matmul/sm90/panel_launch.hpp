// Launches of kernels over panels: maps of the operands, how many blocks stay, alone or in pairs.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/grouped_matmul/sm90/product.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>

namespace tessera::kernels::grouped_matmul::sm90 {

/// Rows of the tiles of a cluster, for matrices with so many: two blocks read B once, but both
/// wait where the rows of one end.
template <class Shape>
int rows_of_cluster(std::int64_t rows) {
  return rows >= 2 * Shape::rows ? 2 * Shape::rows : Shape::rows;
}

/// Of an operand with `extent` rows or columns of the result, boxes of so many of them.
template <class Shape>
bool make_panel_map(CUtensorMap& map, const sm80::factor& of, std::int64_t extent,
                    const product_args& args, int box) {
  const std::int64_t matrices = of.matrix.group == 0 ? 1 : args.matrices;
  const std::int64_t columns = of.across ? extent : args.depth;
  const std::int64_t lines = of.across ? args.depth : extent;
  return prim::cuda::make_tensor_map(
      map, {of.matrix.data,
            {columns, lines, matrices, 1},
            {1, of.matrix.row, of.matrix.group, 0},
            {prim::cuda::panel_columns, of.across ? Shape::depth : box, 1, 1}});
}

/// Launches blocks that stay, in clusters of so many, for so many tiles of a cluster.
template <class Shape, class... Parameters>
cudaError_t launch_staying(void (*kernel)(product_launch, Parameters...), std::int64_t tiles,
                           int blocks, int multiprocessors, cudaStream_t stream,
                           const product_launch& all, const Parameters&... parameters) {
  const std::int64_t clusters =
      std::min<std::int64_t>(tiles, std::max(multiprocessors / blocks, 1));
  // The kernel before is the one that writes the table, if there is one.
  const bool dependent = all.product.table.rows != nullptr && !all.product.sums_rows;
  return prim::cuda::launch_clusters(kernel, cuda::grid_of(clusters * blocks), blocks,
                                     Shape::threads,
                                     static_cast<int>(sizeof(typename Shape::shared_memory)),
                                     stream, dependent, all, parameters...);
}

/// Launches a kernel of panels of `Shape`, whose operands the copy unit addresses, over all tiles
/// of a product; `rows` are those of a cluster.
template <class Shape, class... Parameters>
cudaError_t launch_panels(void (*kernel)(product_launch, Parameters...), const product_args& args,
                          int rows, int multiprocessors, cudaStream_t stream,
                          const Parameters&... parameters) {
  const std::int64_t tiles = args.tiles(rows, Shape::columns);
  if (tiles == 0) return cudaSuccess;
  product_launch all{.product = args, .a = {}, .b = {}, .to = {}};
  if (args.depth > 0 &&
      !(make_panel_map<Shape>(all.a, args.a, args.rows, args, Shape::rows) &&
        make_panel_map<Shape>(all.b, args.b, args.columns, args, Shape::columns / 2))) {
    return cudaErrorNotSupported;
  }
  all.in_boxes = Shape::result_panels > 0 && make_result_map(all.to, args, args.a.matrix.type);
  return launch_staying<Shape>(kernel, tiles, rows / Shape::rows, multiprocessors, stream, all,
                               parameters...);
}

/// The same of transposed products of groups of rows, of clusters of so many blocks.
template <class Shape>
cudaError_t launch_transposed(void (*kernel)(product_launch), const product_args& args, int blocks,
                              int multiprocessors, cudaStream_t stream) {
  const std::int64_t tiles = args.tiles(Shape::rows, Shape::columns * blocks);
  if (tiles == 0) return cudaSuccess;
  product_launch all{.product = args, .a = {}, .b = {}, .to = {}};
  if (args.depth > 0 &&
      !(make_panel_map<Shape>(all.a, args.a, args.rows, args, Shape::box_rows) &&
        make_panel_map<Shape>(all.b, args.b, args.columns, args, Shape::box_columns))) {
    return cudaErrorNotSupported;
  }
  return launch_staying<Shape>(kernel, tiles, blocks, multiprocessors, stream, all);
}

}  // namespace tessera::kernels::grouped_matmul::sm90
