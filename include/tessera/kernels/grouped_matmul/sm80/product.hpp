// What a product of matrices is on a GPU: its operands, its result, the rows of each matrix, and
// which of them a block works on.
#pragma once

#include <cstdint>

#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/kernels/grouped_matmul/sm80/completion.hpp>
#include <tessera/prim/common/ceil_div.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::grouped_matmul::sm80 {

/// An operand. Its lines are contiguous: along the summed axis, or each one element of it
/// (`across`).
struct factor {
  grouped_matrix matrix{};
  grouped_matrix scale{};        ///< of weights; null: 1
  std::int64_t scale_block = 1;  ///< elements of k that share a scale
  bool scale_by_line = false;    ///< lines are along n: k is the line, else the column
  bool across = false;
  bool direct = false;  ///< tiles are copied as they are stored
};

/// Where the rows of groups begin, in device memory. Group g is segment g + 1; rows in front of all
/// groups and behind them are segments of no matrix.
struct row_table {
  std::int64_t* rows = nullptr;   ///< [segments + 1]; null: every matrix has rows of its own
  std::int64_t* tiles = nullptr;  ///< [segments + 1], tiles of rows before a segment
  std::int64_t segments = 0;
  unsigned* taken = nullptr;  ///< tiles that blocks have taken of those they share, 0 at first

  static constexpr std::int64_t segments_of(std::int64_t groups) { return groups + 2; }
};

/// to = finish(a b + bias + init) for the rows of each matrix; or, with `sums_rows`, a product over
/// its rows, times the scales of weights.
struct product_args {
  factor a{}, b{};
  grouped_matrix to{};  ///< null: only sums for scales are wanted
  grouped_matrix bias{}, init{};
  completion finish{};              ///< of the rows of matrices
  result_scales scales_of_codes{};  ///< of a result of elements of 8 bits
  row_table table{};
  bool sums_rows = false;
  std::int64_t matrices = 1;
  std::int64_t rows = 0;     ///< of the result; of the table where that says
  std::int64_t columns = 0;  ///< of the result
  std::int64_t depth = 0;    ///< the summed axis
  /// Gradients of weights: the scales that the result is multiplied by, and sums over pieces of k
  /// of the result times the weights, [matrices][scale_blocks + pieces][n].
  factor weights{};
  float* scale_sums = nullptr;
  std::int64_t scale_blocks = 1;

  /// Tiles of so many rows and columns; of groups as many as there can be.
  std::int64_t tiles(int tile_rows, int tile_columns) const {
    if (rows == 0) return 0;
    const bool by_table = table.rows != nullptr && !sums_rows;
    const std::int64_t high = (rows + tile_rows - 1) / tile_rows;
    return (by_table ? high + table.segments : high * matrices) *
           ((columns + tile_columns - 1) / tile_columns);
  }
};

/// The tile of a block.
struct tile_place {
  std::int64_t matrix = -1;  ///< -1: rows of no matrix, which are those of a tensor that all share
  std::int64_t first = 0;    ///< row of lhs and out that is row 0 of the matrix
  std::int64_t rows = 0;     ///< of the result
  std::int64_t depth = 0;
  std::int64_t row = 0, column = 0;  ///< of the result, where the tile begins
  bool exists = false;

  __device__ __forceinline__ std::int64_t stored_matrix() const { return matrix < 0 ? 0 : matrix; }
};

using prim::ceil_div;

/// The last segment whose tiles begin at `tile` or before. All lanes of a warp ask together.
__device__ __forceinline__ std::int64_t segment_of(const row_table& table, std::int64_t tile) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  std::int64_t low = 0, left = table.segments;
  while (left > 1) {
    const std::int64_t step = ceil_div(left, 32), at = lane * step;
    const bool begun = at < left && table.tiles[low + at] <= tile;
    const int last = 31 - __clz(static_cast<int>(__ballot_sync(prim::cuda::all_lanes, begun)));
    low += last * step;
    left = left - last * step < step ? left - last * step : step;
  }
  return low;
}

/// Tile number `within` of a matrix of `high` x `wide` tiles: bands of so many tiles high, column
/// by column, so that blocks that run together read few operands.
__device__ __forceinline__ void place_in_bands(std::int64_t within, std::int64_t high,
                                               std::int64_t wide, std::int64_t band,
                                               std::int64_t& row, std::int64_t& column) {
  const std::int64_t above = within / (band * wide) * band, inside = within - above * wide;
  const std::int64_t height = high - above < band ? high - above : band;
  row = above + inside % height;
  column = inside / height;
}

/// Where tile number `tile` of so many rows and columns is. All lanes of a warp ask together.
__device__ __forceinline__ tile_place place_of(const product_args& args, std::int64_t tile,
                                               int tile_rows, int tile_columns, int band = 16) {
  tile_place at;
  const std::int64_t wide = ceil_div(args.columns, tile_columns);
  std::int64_t within = 0;
  if (args.table.rows != nullptr && !args.sums_rows) {
    if (tile / wide >= args.table.tiles[args.table.segments]) return at;
    const std::int64_t segment = segment_of(args.table, tile / wide);
    at.matrix = segment == 0 || segment + 1 == args.table.segments ? -1 : segment - 1;
    at.first = args.table.rows[segment];
    at.rows = args.table.rows[segment + 1] - at.first;
    at.depth = at.matrix < 0 ? 0 : args.depth;
    within = tile - args.table.tiles[segment] * wide;
  } else {
    const std::int64_t tiles = ceil_div(args.rows, tile_rows) * wide;
    at.matrix = tile / tiles;
    if (at.matrix >= args.matrices) return at;
    at.rows = args.rows;
    at.depth = args.depth;
    within = tile - at.matrix * tiles;
    if (args.table.rows != nullptr) {
      at.first = args.table.rows[at.matrix + 1];
      at.depth = args.table.rows[at.matrix + 2] - at.first;
    }
  }
  place_in_bands(within, ceil_div(at.rows, tile_rows), wide, band, at.row, at.column);
  at.row *= tile_rows;
  at.column *= tile_columns;
  at.exists = true;
  return at;
}

/// Sum of `x` over this lane and those before it.
__device__ __forceinline__ std::int64_t sum_up_to_lane(std::int64_t x, int lane) {
  for (int step = 1; step < 32; step *= 2) {
    const std::int64_t before =
        __shfl_up_sync(prim::cuda::all_lanes, x, static_cast<unsigned>(step));
    if (lane >= step) x += before;
  }
  return x;
}

/// Writes the table: one warp. Sizes are numbers in device memory: those below 0 count as 0, and
/// what reaches beyond the rows is cut off.
static __global__ void place_groups(const grouped_matmul_kernel_args args, const row_table table,
                                    const int tile_rows) {
  prim::cuda::let_next_grid_start();
  const int lane = static_cast<int>(threadIdx.x);
  const auto size_at = [&](std::int64_t group) -> std::int64_t {
    const std::int32_t size = args.group_sizes[group];
    return size < 0 ? 0 : size;
  };
  const auto cut = [&](std::int64_t row) { return row < args.m ? row : args.m; };
  const auto last_of = [](std::int64_t sum) { return __shfl_sync(prim::cuda::all_lanes, sum, 31); };
  std::int64_t row = 0;
  for (std::int64_t first = 0; !args.local_rows && first < args.group_offset; first += 32) {
    const std::int64_t group = first + lane;
    row += last_of(sum_up_to_lane(group < args.group_offset ? size_at(group) : 0, lane));
    row = cut(row);
  }
  if (lane == 0) table.rows[0] = table.tiles[0] = 0;
  if (lane == 0 && table.taken != nullptr) *table.taken = 0;
  std::int64_t tile = ceil_div(row, tile_rows);
  for (std::int64_t first = 0; first < args.groups; first += 32) {
    const std::int64_t group = first + lane;
    const bool held = group < args.groups;
    const std::int64_t size = held ? size_at(args.group_offset + group) : 0;
    const std::int64_t up_to = sum_up_to_lane(size, lane);
    const std::int64_t begin = cut(row + up_to - size), end = cut(row + up_to);
    const std::int64_t tiles = ceil_div(end - begin, tile_rows);
    const std::int64_t tiles_up_to = sum_up_to_lane(tiles, lane);
    if (held) {
      table.rows[group + 1] = begin;
      table.tiles[group + 1] = tile + tiles_up_to - tiles;
    }
    row = cut(row + last_of(up_to));
    tile += last_of(tiles_up_to);
  }
  if (lane != 0) return;
  table.rows[args.groups + 1] = row;
  table.tiles[args.groups + 1] = tile;
  table.rows[args.groups + 2] = args.m;
  table.tiles[args.groups + 2] = tile + ceil_div(args.m - row, tile_rows);
}

}  // namespace tessera::kernels::grouped_matmul::sm80
