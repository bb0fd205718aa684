// Products of 16-bit elements with wgmma (compute capability 9.0, sm_90a), f32 sums in registers.
//
// A block stays for the whole launch and has two warpgroups that multiply, 64 rows of a tile of the
// result each, and one warp that finds tiles and brings their operands. Two blocks may form a
// cluster: their tiles lie below each other, and each brings half of the columns of B, for both.
#pragma once

#include <cstdint>

#include <cuda.h>

#include <tessera/kernels/grouped_matmul/sm80/product.hpp>
#include <tessera/kernels/grouped_matmul/sm90/box_result.hpp>
#include <tessera/kernels/grouped_matmul/sm90/result.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/box_store.hpp>
#include <tessera/prim/cuda/cluster.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>
#include <tessera/prim/cuda/wgmma.hpp>

namespace tessera::kernels::grouped_matmul::sm90 {

using sm80::ceil_div;
using sm80::product_args;
using sm80::tile_place;

/// A product, and maps of its operands with the boxes that a block asks for.
struct product_launch {
  product_args product{};
  CUtensorMap a, b;
  CUtensorMap to;         ///< of the result, with the boxes of box_result.hpp
  bool in_boxes = false;  ///< the result is stored by that map
};

/// The tile of a block and what lies in its shared memory. Threads that multiply have so many
/// registers.
template <int Columns, int Registers = 224>
struct tile_shape {
  static constexpr int rows = 128, columns = Columns;
  static constexpr int depth = 64;  ///< of a stage, as much as a row of a panel has
  static constexpr int row_bytes = prim::cuda::panel_row_bytes;
  static constexpr int a_bytes = rows * row_bytes, b_bytes = columns * row_bytes;
  /// Panels that a warpgroup has for results, part of a tile or all; without them sums go to memory
  /// from registers, as narrow tiles want their stages more.
  static constexpr int result_panels = Columns == 256 ? 2 : Columns == 192 ? 3 : 0;
  static constexpr int result_bytes = rows * row_bytes * result_panels;
  static constexpr int stages = (229376 - result_bytes) / (a_bytes + b_bytes);  ///< what is left
  static constexpr int consumers = rows / 64;
  static constexpr int consumer_warps = 4 * consumers;
  static constexpr int threads = prim::cuda::warpgroup_size * (consumers + 1);
  static constexpr int consumer_registers = Registers, producer_registers = 504 - 2 * Registers;

  struct alignas(1024) shared_memory {
    unsigned char a[stages][a_bytes];
    unsigned char b[stages][b_bytes];
    unsigned char result[result_bytes > 0 ? result_bytes : 1024];
    prim::cuda::ring_barriers<stages> of_stage;
    prim::cuda::ring_barriers<2> of_tile;
    tile_place tile[2];
  };
};

/// What a warp that brings operands does: tells those that multiply of every tile of its cluster,
/// place(number), and of the end, and has one thread bring(tile). The first number is that of the
/// cluster, what follows one is next(number).
template <class Shape, class Next, class Place, class Bring>
__device__ __forceinline__ void announce_tiles(typename Shape::shared_memory& shared, int blocks,
                                               const Next& next, const Place& place,
                                               const Bring& bring) {
  const std::uint32_t tiles = prim::cuda::shared_address(&shared.of_tile);
  const bool leads = threadIdx.x % prim::cuda::warp_size == 0;
  prim::cuda::ring_place<2> ring;
  prim::cuda::wait_for_grid_before();
  for (std::int64_t tile = blockIdx.x / blocks;; tile = next(tile)) {
    const tile_place at = place(tile);
    ring.wait_empty(tiles);
    if (leads) {
      shared.tile[ring.stage()] = at;
      prim::cuda::arrive(ring.full(tiles));
    }
    ring.advance();
    if (!at.exists) return;
    if (leads) bring(at);
    __syncwarp();
  }
}

/// The warp that finds tiles and keeps their operands on their way.
template <class Shape, bool AcrossA, bool AcrossB>
class producer {
  using memory = typename Shape::shared_memory;

 public:
  __device__ __forceinline__ producer(const product_launch& all, memory& shared)
      : all_(all), shared_(shared) {}

  __device__ __forceinline__ void run() {
    const int rows = Shape::rows * blocks_;
    announce_tiles<Shape>(
        shared_, blocks_, [&](std::int64_t tile) { return tile + gridDim.x / blocks_; },
        [&](std::int64_t tile) {
          tile_place at =
              sm80::place_of(all_.product, tile, rows, Shape::columns, band_rows / rows);
          at.row += Shape::rows * rank_;
          return at;
        },
        [&](const tile_place& at) { bring(at); });
  }

 private:
  /// Both operands of a tile, by one thread.
  __device__ __forceinline__ void bring(const tile_place& at) {
    const product_args& args = all_.product;
    const std::uint32_t barriers = prim::cuda::shared_address(&shared_.of_stage);
    const auto first = static_cast<int>(at.first);
    const int line_a = first + (AcrossA ? 0 : static_cast<int>(at.row));
    const int line_b = (args.sums_rows ? first : 0) + (AcrossB ? 0 : static_cast<int>(at.column));
    const int matrix_a = matrix_of(args.a, at), matrix_b = matrix_of(args.b, at);
    const auto depth = static_cast<int>(at.depth);
#pragma unroll 1
    for (int k = 0; k < depth; k += Shape::depth) {
      stage_place_.wait_empty(barriers);
      const std::uint32_t full = stage_place_.full(barriers), stage = stage_place_.stage();
      prim::cuda::arrive_expecting(full, Shape::a_bytes + Shape::b_bytes);
      bring_operand<AcrossA, Shape::rows, 1>(prim::cuda::shared_address(shared_.a[stage]), all_.a,
                                             full, static_cast<int>(at.row), line_a, k, matrix_a);
      bring_operand<AcrossB, Shape::columns, 2>(prim::cuda::shared_address(shared_.b[stage]),
                                                all_.b, full, static_cast<int>(at.column), line_b,
                                                k, matrix_b);
      stage_place_.advance();
    }
  }

  /// `Extent` rows or columns of the result from `start` on, 64 deep from k on. Of an operand that
  /// two blocks may share a half, for both.
  template <bool Across, int Extent, int Sharers>
  __device__ __forceinline__ void bring_operand(std::uint32_t to, const CUtensorMap& map,
                                                std::uint32_t full, int start, int line, int k,
                                                int matrix) {
    constexpr int boxes = Across ? Extent / 64 : Sharers, each = Extent / boxes;
#pragma unroll
    for (int box = 0; box < boxes; ++box) {
      const std::uint32_t to_box = to + box * each * Shape::row_bytes;
      const int at[4] = {Across ? start + box * each : k, line + (Across ? k : box * each), matrix,
                         0};
      if (Sharers == 1 || blocks_ == 1) {
        prim::cuda::copy_box(to_box, map, full, at, hint);
      } else if (box * Sharers / boxes == rank_) {
        prim::cuda::copy_box_to_blocks(to_box, map, full, at, 3, hint);
      }
    }
  }

  static __device__ __forceinline__ int matrix_of(const sm80::factor& operand,
                                                  const tile_place& at) {
    return operand.matrix.group == 0 ? 0 : static_cast<int>(at.stored_matrix());
  }

  /// Tiles are taken in bands of so many rows: blocks that run together share both operands.
  static constexpr int band_rows = 2048;
  static constexpr auto hint = prim::cuda::cache_hint::evict_normal;

  const product_launch& all_;
  memory& shared_;
  const int rank_ = static_cast<int>(prim::cuda::block_in_cluster());
  const int blocks_ = static_cast<int>(prim::cuda::blocks_of_cluster());
  prim::cuda::ring_place<Shape::stages> stage_place_;
};

/// A warpgroup that takes every tile of its block, and the stages of its operands in order.
template <class Shape>
class tile_taker {
 protected:
  using memory = typename Shape::shared_memory;

  __device__ __forceinline__ tile_taker(const product_args& args, memory& shared, int warpgroup)
      : args_(args), shared_(shared), warpgroup_(warpgroup) {}

  /// Calls take(tile, first row of the warpgroup in it, whether that exists) for each.
  template <class Take>
  __device__ __forceinline__ void for_each_tile(const Take& take) {
    const std::uint32_t tiles = prim::cuda::shared_address(&shared_.of_tile);
    for (;; tile_place_.advance()) {
      tile_place_.wait_full(tiles);
      const tile_place& at = shared_.tile[tile_place_.stage()];
      if (!at.exists) return;
      const int row = warpgroup_ * 64;
      take(at, row, at.row + row < at.rows);
      __syncwarp();
      if (threadIdx.x % prim::cuda::warp_size == 0) tile_place_.release(tiles);
    }
  }

  /// Of the stage before the one that is next: its place may be filled, by every block that brings
  /// something there.
  __device__ __forceinline__ void release() {
    __syncwarp();
    const std::uint32_t lane = threadIdx.x % prim::cuda::warp_size;
    const std::uint32_t barriers = prim::cuda::shared_address(&shared_.of_stage);
    const std::uint32_t empty = barriers + 8 * (Shape::stages + released_place_.stage());
    if (lane < prim::cuda::blocks_of_cluster()) prim::cuda::arrive_at_block(empty, lane);
    released_place_.advance();
  }

  /// The operands of a stage; those of A are the warpgroup's rows.
  __device__ __forceinline__ std::uint64_t stage_of_a(std::uint32_t stage) const {
    constexpr int panel = 64 * Shape::row_bytes;
    return prim::cuda::describe_panels(
        prim::cuda::shared_address(shared_.a[stage]) + warpgroup_ * panel, panel);
  }
  __device__ __forceinline__ std::uint64_t stage_of_b(std::uint32_t stage) const {
    return prim::cuda::describe_panels(prim::cuda::shared_address(shared_.b[stage]),
                                       64 * Shape::row_bytes);
  }

  /// Completes and stores the sums of a tile, by the copy unit where it may.
  template <class Element, int Sums, class Epilogue>
  __device__ __forceinline__ void store(const product_launch& all, const tile_place& at, int row,
                                        const float (&sums)[Sums], const Epilogue& epilogue) {
    if constexpr (Shape::result_panels > 0 && !sm80::is_epilogue<Epilogue>) {
      if (all.in_boxes && box_is_whole(args_, at, row)) {
        return store_boxes<Element, Shape::result_panels>(
            all.to, args_, at, row, prim::cuda::shared_address(shared_.result), sums);
      }
    }
    store_sums<Element>(args_, at, row, sums, epilogue);
  }
  /// Shared memory is given back behind it.
  static __device__ __forceinline__ void end_stores() {
    if constexpr (Shape::result_panels > 0) prim::cuda::wait_for_reads_of_stores();
  }

  const product_args& args_;
  memory& shared_;
  const int warpgroup_;
  prim::cuda::ring_place<2> tile_place_;
  prim::cuda::ring_place<Shape::stages> stage_place_, released_place_;
};

/// A warpgroup that multiplies: 64 rows of every tile.
template <class Element, class Shape, bool AcrossA, bool AcrossB, class Epilogue = no_epilogue>
class consumer : protected tile_taker<Shape> {
  using base = tile_taker<Shape>;
  using product = prim::cuda::warpgroup_product<Element, Shape::columns>;

 protected:
  using base::args_, base::shared_, base::stage_place_, base::release;

 public:
  __device__ __forceinline__ consumer(const product_args& args,
                                      typename Shape::shared_memory& shared, int warpgroup,
                                      const Epilogue& epilogue = {})
      : base(args, shared, warpgroup), epilogue_(epilogue) {}

  __device__ __forceinline__ void run(const product_launch& all) {
    base::for_each_tile([&](const tile_place& at, int row, bool busy) {
      multiply(static_cast<int>(at.depth), busy);
      if (busy) base::template store<Element>(all, at, row, sums_, epilogue_);
    });
    base::end_stores();
  }

 protected:
  /// The sums of a tile, if the warpgroup has rows in it (`busy`): a stage is released once the
  /// products of the next one have begun.
  __device__ __forceinline__ void multiply(int depth, bool busy) {
    const std::uint32_t barriers = prim::cuda::shared_address(&shared_.of_stage);
#pragma unroll
    for (auto& sum : sums_) sum = 0;
#pragma unroll 1
    for (int k = 0; k < depth; k += Shape::depth) {
      stage_place_.wait_full(barriers);
      if (AcrossA && k + Shape::depth > depth) clear_rows_from(depth - k);
      if (busy) {
        prim::cuda::begin_products();
        multiply_stage(stage_place_.stage());
        prim::cuda::commit_products();
      }
      prim::cuda::wait_products<1>();
      if (k > 0) release();
      stage_place_.advance();
    }
    prim::cuda::wait_products<0>();
    prim::cuda::keep_in_place(sums_);
    if (depth > 0) release();
  }

  __device__ __forceinline__ void multiply_stage(std::uint32_t stage) {
    const std::uint64_t a = base::stage_of_a(stage), b = base::stage_of_b(stage);
    constexpr int step_a = AcrossA ? 16 * Shape::row_bytes : 32;
    constexpr int step_b = AcrossB ? 16 * Shape::row_bytes : 32;
#pragma unroll
    for (int step = 0; step < Shape::depth / 16; ++step) {
      product::template multiply<AcrossA, AcrossB>(sums_, a + prim::cuda::panel_step(step * step_a),
                                                   b + prim::cuda::panel_step(step * step_b), true);
    }
  }

  /// The rows of a stage that are another group's become zeros. By both warpgroups: they share B.
  __device__ __forceinline__ void clear_rows_from(int first) {
    constexpr int rows = Shape::depth, chunks = Shape::row_bytes / 16;
    constexpr int panels_of_a = Shape::rows / 64, panels = panels_of_a + Shape::columns / 64;
    const std::uint32_t a = prim::cuda::shared_address(shared_.a[stage_place_.stage()]);
    const std::uint32_t b = prim::cuda::shared_address(shared_.b[stage_place_.stage()]);
    const int of_a_panel = (rows - first) * chunks,
              threads = prim::cuda::warpgroup_size * Shape::consumers;
    for (int item = static_cast<int>(threadIdx.x); item < panels * of_a_panel; item += threads) {
      const int panel = item / of_a_panel, inside = item % of_a_panel;
      const std::uint32_t of_panel = panel < panels_of_a
                                         ? a + panel * rows * Shape::row_bytes
                                         : b + (panel - panels_of_a) * rows * Shape::row_bytes;
      prim::cuda::store_shared_16(of_panel + first * Shape::row_bytes + inside * 16, {0, 0, 0, 0});
    }
    prim::cuda::show_writes_to_async_units();
    prim::cuda::wait_for_threads(1, threads);
  }

  const Epilogue& epilogue_;
  typename product::sum_type sums_[Shape::columns / 2];
};

/// What every kernel of panels does: one warp runs `produce()`, warpgroups run `consume(number)`.
template <class Shape, class Produce, class Consume>
__device__ __forceinline__ void run_block(typename Shape::shared_memory& shared,
                                          const Produce& produce, const Consume& consume) {
  const int warpgroup = prim::cuda::warpgroup_index();
  if (threadIdx.x == 0) {
    const int blocks = static_cast<int>(prim::cuda::blocks_of_cluster());
    shared.of_stage.init(1, Shape::consumer_warps * blocks);
    shared.of_tile.init(1, Shape::consumer_warps);
    prim::cuda::publish_barriers();
  }
  prim::cuda::wait_for_cluster();
  if (warpgroup == Shape::consumers) {
    prim::cuda::give_registers<Shape::producer_registers>();
    if (threadIdx.x / prim::cuda::warp_size == Shape::consumer_warps) produce();
    __syncwarp();
  } else {
    prim::cuda::take_registers<Shape::consumer_registers>();
    consume(warpgroup);
  }
  // Others may still arrive at this block's barriers.
  prim::cuda::wait_for_cluster();
}

/// The same, where the warp brings operands that lie as the flags say.
template <class Shape, bool AcrossA, bool AcrossB, class Consume>
__device__ __forceinline__ void run_block(const product_launch& all,
                                          typename Shape::shared_memory& shared,
                                          const Consume& consume) {
  run_block<Shape>(
      shared, [&] { producer<Shape, AcrossA, AcrossB>(all, shared).run(); }, consume);
}

/// All tiles of a product whose operands lie as the flags say.
template <class Element, class Shape, bool AcrossA, bool AcrossB, class Epilogue>
__global__ void __launch_bounds__(Shape::threads, 1)
    multiply_panels(const __grid_constant__ product_launch all,
                    const __grid_constant__ Epilogue epilogue) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  auto& shared = *reinterpret_cast<typename Shape::shared_memory*>(bytes);
  run_block<Shape, AcrossA, AcrossB>(all, shared, [&](int warpgroup) {
    consumer<Element, Shape, AcrossA, AcrossB, Epilogue>(all.product, shared, warpgroup, epilogue)
        .run(all);
  });
}

}  // namespace tessera::kernels::grouped_matmul::sm90
