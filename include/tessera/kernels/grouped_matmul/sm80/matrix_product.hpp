// Products of 16-bit elements on the matrix unit, with f32 sums. A block owns a tile of the result
// and goes along the summed axis; a warp owns 64x64 of it, or 32x32 of a small tile.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/kernels/grouped_matmul/sm80/operand.hpp>
#include <tessera/kernels/grouped_matmul/sm80/product.hpp>
#include <tessera/kernels/grouped_matmul/sm80/result.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/pipeline.hpp>

namespace tessera::kernels::grouped_matmul::sm80 {

/// How a tile of the result is cut into warps.
template <int Rows, int Columns>
struct matrix_shape {
  static constexpr int rows = Rows, columns = Columns;
  static constexpr int side = Rows * Columns >= 128 * 128 ? 64 : 32;  ///< of a warp's part
  static constexpr int warp_columns = Columns / side;
  static constexpr int threads = 32 * (Rows / side) * warp_columns;
  static constexpr int blocks = threads > 128 ? 1 : side == 64 ? 2 : 4;  ///< of a multiprocessor
  static constexpr int a_bytes = Rows * tile_depth * 2;
  static constexpr int stage_bytes = a_bytes + Columns * tile_depth * 2;
  static constexpr int tiles_at = 128;  ///< of operands, then of sums; in front is the tile's place
  /// Three, or as many as every GPU has shared memory for.
  static constexpr int fitting_stages = (99 * 1024 - tiles_at) / stage_bytes;
  static constexpr int stages = fitting_stages < 3 ? fitting_stages : 3;
  static constexpr int shared_bytes =
      tiles_at + staged_result<Rows, Columns>::or_more(stages * stage_bytes);
};

/// A warp's part of the sums.
template <int Side>
struct warp_sums {
  prim::cuda::accumulator at[Side / 16][Side / 8];
  int row = 0, column = 0;  ///< of its first element in the tile

  /// Calls visit(row, column, x, y) with two sums side by side.
  template <class Visit>
  __device__ __forceinline__ void for_each_pair(const Visit& visit) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int m = 0; m < Side / 16; ++m) {
#pragma unroll
      for (int n = 0; n < Side / 8; ++n) {
        const int r = row + m * 16 + lane / 4, c = column + n * 8 + lane % 4 * 2;
        visit(r, c, at[m][n].at[0], at[m][n].at[1]);
        visit(r + 8, c, at[m][n].at[2], at[m][n].at[3]);
      }
    }
  }
};

/// Operands of a warp for 16 elements of the summed axis.
template <class Element, int Side, bool AcrossA, bool AcrossB>
struct warp_operands {
  prim::cuda::fragment_a a[Side / 16];
  prim::cuda::fragment_b2 b[Side / 16];

  /// From lane addresses in tiles A and B; `part` is which 16 elements of the tile.
  template <class TileA, class TileB>
  __device__ __forceinline__ void load(std::uint32_t tile_a, std::uint32_t tile_b, int part) {
#pragma unroll
    for (int i = 0; i < Side / 16; ++i) {
      if constexpr (AcrossA) {
        prim::cuda::load_matrices_transposed(a[i].reg, TileA::step(tile_a, part, i));
      } else {
        prim::cuda::load_matrices(a[i].reg, TileA::step(tile_a, i, part));
      }
    }
#pragma unroll
    for (int i = 0; i < Side / 16; ++i) {
      if constexpr (AcrossB) {
        prim::cuda::load_matrices_transposed(b[i].reg, TileB::step(tile_b, part, i));
      } else {
        prim::cuda::load_matrices(b[i].reg, TileB::step(tile_b, i, part));
      }
    }
  }

  __device__ __forceinline__ void multiply_add(warp_sums<Side>& sums) const {
    using words = prim::cuda::half_words<Element>;
#pragma unroll
    for (int n = 0; n < Side / 16; ++n) {
#pragma unroll
      for (int i = 0; i < Side / 16; ++i) {
        const int m = n % 2 == 0 ? i : Side / 16 - 1 - i;  // begins where the one before ended
        words::template multiply_add<0>(sums.at[m][2 * n], a[m], b[n]);
        words::template multiply_add<1>(sums.at[m][2 * n + 1], a[m], b[n]);
      }
    }
  }
};

/// A tile of the result for each block; see `place_of`. Without `Direct` operands are stored
/// anyhow.
template <class Element, class Shape, bool AcrossA, bool AcrossB, bool Direct, class Epilogue>
__global__ void __launch_bounds__(Shape::threads, Shape::blocks)
    multiply_matrices(const __grid_constant__ product_args args, const Epilogue epilogue) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const tile_place at = place_of(args, blockIdx.x, Shape::rows, Shape::columns);
  if (!at.exists) return;
  // Read again at the end, so that no register holds it till then.
  tile_place& kept = *reinterpret_cast<tile_place*>(shared);
  if (threadIdx.x == 0) kept = at;

  using copy_a = std::conditional_t<Direct, tile_copy<Shape::rows, AcrossA, Shape::threads>,
                                    tile_read<Element, Shape::rows, Shape::threads>>;
  using copy_b = std::conditional_t<Direct, tile_copy<Shape::columns, AcrossB, Shape::threads>,
                                    tile_read<Element, Shape::columns, Shape::threads>>;
  using tile_a = typename copy_a::tile;
  using tile_b = typename copy_b::tile;
  copy_a of_a(operand_part::of_a(args, at));
  copy_b of_b(operand_part::of_b(args, at));

  constexpr int side = Shape::side;
  const unsigned lane = threadIdx.x % 32;
  const int warp = static_cast<int>(threadIdx.x / 32);
  warp_sums<side> sums{};
  sums.row = warp / Shape::warp_columns * side;
  sums.column = warp % Shape::warp_columns * side;
  // A warp whose part lies beyond the result only copies.
  const bool busy = at.row + sums.row < at.rows && at.column + sums.column < args.columns;
  const std::uint32_t base = prim::cuda::shared_address(shared) + Shape::tiles_at;
  const std::uint32_t lane_a =
      base + (AcrossA ? tile_a::step(tile_a::lane_of_b(lane), 0, sums.row / 16 % 4) +
                            static_cast<unsigned>(sums.row / 64 * 128)
                      : tile_a::step(tile_a::lane_of_a(lane), sums.row / 16, 0));
  const std::uint32_t lane_b =
      base + Shape::a_bytes +
      (AcrossB ? tile_b::step(tile_b::lane_of_a(lane), 0, sums.column / 16 % 4) +
                     static_cast<unsigned>(sums.column / 64 * 128)
               : tile_b::step(tile_b::lane_of_b(lane), sums.column / 16, 0));

  prim::cuda::pipeline<Shape::stages> pipe;
  const auto tiles = static_cast<int>(ceil_div(at.depth, tile_depth));
  // No branches: what lies behind the last tile becomes zeros.
  const auto start = [&](int stage) {
    const std::uint32_t to = base + static_cast<unsigned>(stage * Shape::stage_bytes);
    of_a.start(to);
    of_b.start(to + Shape::a_bytes);
    pipe.commit();
  };
  warp_operands<Element, side, AcrossA, AcrossB> operands[2];
  const auto load = [&](int part) {
    const auto stage = static_cast<unsigned>(pipe.stage() * Shape::stage_bytes);
    operands[part % 2].template load<tile_a, tile_b>(lane_a + stage, lane_b + stage, part);
  };
#pragma unroll
  for (int stage = 0; stage < Shape::stages; ++stage) start(stage);
  pipe.template wait<Shape::stages - 1>();
  if (busy) {
    constexpr int last = tile_depth / 16 - 1;
    load(0);
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
      for (int part = 0; part < last - 1; ++part) {
        load(part + 1);
        operands[part % 2].multiply_add(sums);
      }
      // All of the tile is in registers: another may take its place. Products of its last part
      // cover the loads of the next tile.
      load(last);
      pipe.template wait<Shape::stages - 2>();
      start(pipe.stage());
      operands[(last - 1) % 2].multiply_add(sums);
      pipe.advance();
      load(0);
      operands[last % 2].multiply_add(sums);
    }
  } else {
    for (int tile = 0; tile < tiles; ++tile) {
      pipe.template wait<Shape::stages - 2>();
      start(pipe.stage());
      pipe.advance();
    }
  }
  pipe.drain();
  store_result<Shape::rows, Shape::columns, Shape::threads>(
      args, kept, reinterpret_cast<float*>(shared + Shape::tiles_at), sums, epilogue);
}

}  // namespace tessera::kernels::grouped_matmul::sm80
