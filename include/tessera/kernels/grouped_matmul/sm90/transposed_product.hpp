// Products of short groups of rows with wgmma, transposed: out^T = W^T x^T. Columns of the result
// are the 64 rows that an instruction always has, rows of a group its other side, which may be any
// multiple of 16: groups that end anywhere waste little of either.
//
// The rows of a group are cut evenly into tiles, so that none has a few rows and reads all weights
// for them. Blocks of a cluster have columns beside each other and share the rows: each brings a
// part of them, for all. Tiles differ in what they cost, so that clusters take the next that nobody
// has.
#pragma once

#include <cstdint>

#include <tessera/kernels/grouped_matmul/sm80/product.hpp>
#include <tessera/kernels/grouped_matmul/sm90/product.hpp>
#include <tessera/kernels/grouped_matmul/sm90/result.hpp>
#include <tessera/prim/cuda/cluster.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>
#include <tessera/prim/cuda/transposed_tile.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>
#include <tessera/prim/cuda/wgmma.hpp>

namespace tessera::kernels::grouped_matmul::sm90 {

/// The tile of a block: columns of the result, and rows of a group at most, of which an element of
/// W^T x^T has as many sums in registers. Of narrow tiles more than one product of the matrix unit
/// has: groups of a little more than that are one tile then, which reads their weights once.
template <int Columns>
struct transposed_shape {
  static constexpr int columns = Columns, rows = Columns == 128 ? 320 : 32768 / Columns;
  static constexpr int most_together = 256;  ///< rows of a product
  static constexpr int step = 16;            ///< rows are multiplied in multiples of these
  static constexpr int box_rows = 32;        ///< rows that are brought together
  static constexpr int box_columns = 128;    ///< of weights, likewise, unless they lie across
  static constexpr int depth = 64;
  static constexpr int row_bytes = prim::cuda::panel_row_bytes;
  static constexpr int a_bytes = columns * row_bytes, b_bytes = rows * row_bytes;
  static constexpr int box_bytes = box_rows * row_bytes;
  static constexpr int stages = 229376 / (a_bytes + b_bytes);
  static constexpr int consumers = 2;
  static constexpr int consumer_warps = 4 * consumers;
  static constexpr int threads = prim::cuda::warpgroup_size * (consumers + 1);
  static constexpr int consumer_registers = 224, producer_registers = 56;
  static constexpr int tiles = columns / 64 / consumers;  ///< of 64 columns, of a warpgroup

  struct alignas(1024) shared_memory {
    unsigned char a[stages][a_bytes];
    unsigned char b[stages][b_bytes];
    prim::cuda::ring_barriers<stages> of_stage;
    prim::cuda::ring_barriers<2> of_tile, of_number;
    tile_place tile[2];
    std::uint64_t number[2];  ///< of the tiles that the cluster takes
  };
};

/// Pieces of so many rows that hold those of a tile.
__device__ __forceinline__ int pieces_of(const tile_place& at, int each) {
  return static_cast<int>(at.rows - at.row <= each ? 1 : ceil_div(at.rows - at.row, each));
}

/// The warp that finds tiles and keeps their operands on their way. `rows` of a tile are those
/// before its end.
template <class Shape, bool AcrossW>
class transposed_producer {
  using memory = typename Shape::shared_memory;

 public:
  __device__ __forceinline__ transposed_producer(const product_launch& all, memory& shared)
      : all_(all), shared_(shared) {}

  __device__ __forceinline__ void run() {
    announce_tiles<Shape>(
        shared_, blocks_, [&](std::int64_t) { return next(); },
        [&](std::int64_t tile) { return place_of(tile); },
        [&](const tile_place& at) { bring(at); });
  }

 private:
  /// The next tile that nobody has: the first block of the cluster asks, and tells all.
  __device__ __forceinline__ std::int64_t next() {
    const std::uint32_t barriers = prim::cuda::shared_address(&shared_.of_number);
    const std::uint32_t full = number_place_.full(barriers), stage = number_place_.stage();
    const bool leads = threadIdx.x % prim::cuda::warp_size == 0;
    std::uint64_t number = 0;
    if (leads) {
      prim::cuda::arrive_expecting(full, sizeof number);
      if (rank_ == 0) {
        number_place_.wait_empty(barriers);
        const unsigned taken = atomicAdd(all_.product.table.taken, 1u);
        for (int block = 0; block < blocks_; ++block) {
          prim::cuda::store_at_block(prim::cuda::shared_address(shared_.number + stage),
                                     gridDim.x / blocks_ + taken, full, block);
        }
      }
      number_place_.wait_full(barriers);
      number = *static_cast<const volatile std::uint64_t*>(shared_.number + stage);
    }
    number = __shfl_sync(prim::cuda::all_lanes, number, 0);
    if (leads) prim::cuda::arrive_at_block(barriers + 8 * (2 + stage), 0);
    number_place_.advance();
    return static_cast<std::int64_t>(number);
  }

  __device__ __forceinline__ tile_place place_of(std::int64_t tile) const {
    tile_place at = sm80::place_of(all_.product, tile, Shape::rows, Shape::columns * blocks_,
                                   2048 / Shape::rows);
    if (!at.exists) return at;
    const std::int64_t number = at.row / Shape::rows;
    const std::int64_t height = ceil_div(at.rows, ceil_div(at.rows, Shape::rows));
    at.row = number * height;
    if (at.row + height < at.rows) at.rows = at.row + height;
    at.column += Shape::columns * rank_;
    return at;
  }

  __device__ __forceinline__ void bring(const tile_place& at) {
    const product_args& args = all_.product;
    const std::uint32_t barriers = prim::cuda::shared_address(&shared_.of_stage);
    const auto depth = static_cast<int>(at.depth), column = static_cast<int>(at.column);
    const int row = static_cast<int>(at.first + at.row), boxes = pieces_of(at, Shape::box_rows);
    const int matrix = args.b.matrix.group == 0 ? 0 : static_cast<int>(at.stored_matrix());
    const auto bytes = static_cast<std::uint32_t>(Shape::a_bytes + boxes * Shape::box_bytes);
#pragma unroll 1
    for (int k = 0; k < depth; k += Shape::depth) {
      place_.wait_empty(barriers);
      const std::uint32_t full = place_.full(barriers), stage = place_.stage();
      prim::cuda::arrive_expecting(full, bytes);
      const std::uint32_t w = prim::cuda::shared_address(shared_.a[stage]);
      constexpr int each = AcrossW ? prim::cuda::panel_columns : Shape::box_columns;
#pragma unroll
      for (int box = 0; box < Shape::columns / each; ++box) {
        const int from = column + box * each;
        const int of_w[4] = {AcrossW ? from : k, AcrossW ? k : from, matrix, 0};
        prim::cuda::copy_box(w + box * each * Shape::row_bytes, all_.b, full, of_w, hint);
      }
      const std::uint32_t x = prim::cuda::shared_address(shared_.b[stage]);
#pragma unroll 1
      for (int box = rank_; box < boxes; box += blocks_) {
        const int of_x[4] = {k, row + box * Shape::box_rows, 0, 0};
        const std::uint32_t to = x + box * Shape::box_bytes;
        if (blocks_ == 1) {
          prim::cuda::copy_box(to, all_.a, full, of_x, hint);
        } else {
          prim::cuda::copy_box_to_blocks(to, all_.a, full, of_x, 3, hint);
        }
      }
      place_.advance();
    }
  }

  static constexpr auto hint = prim::cuda::cache_hint::evict_normal;

  const product_launch& all_;
  memory& shared_;
  const int rank_ = static_cast<int>(prim::cuda::block_in_cluster());
  const int blocks_ = static_cast<int>(prim::cuda::blocks_of_cluster());
  prim::cuda::ring_place<Shape::stages> place_;
  prim::cuda::ring_place<2> number_place_;
};

/// A warpgroup that multiplies: its columns of every tile.
template <class Element, class Shape, bool AcrossW>
class transposed_consumer : tile_taker<Shape> {
  using base = tile_taker<Shape>;
  static constexpr int tiles = Shape::tiles;
  template <int Rows>
  using product = prim::cuda::warpgroup_product<Element, Rows>;

 public:
  __device__ __forceinline__ transposed_consumer(const product_args& args,
                                                 typename Shape::shared_memory& shared,
                                                 int warpgroup)
      : base(args, shared, warpgroup) {}

  __device__ __forceinline__ void run() {
    base::for_each_tile(
        [&](const tile_place& at, int, bool) { take<1>(at, pieces_of(at, Shape::step)); });
  }

 private:
  /// The products of a tile with so many steps or more.
  template <int Steps>
  __device__ __forceinline__ void take(const tile_place& at, int steps) {
    if constexpr (Steps * Shape::step < Shape::rows) {
      if (steps > Steps) return take<Steps + 1>(at, steps);
    }
    constexpr int second = Steps * Shape::step > Shape::most_together ? Steps / 2 : 0;
    multiply<(Steps - second) * Shape::step, second * Shape::step>(at);
  }

  /// The products of `Rows` rows, and of `Second` behind them.
  template <int Rows, int Second>
  __device__ __forceinline__ void multiply(const tile_place& at) {
    const std::uint32_t barriers = prim::cuda::shared_address(&base::shared_.of_stage);
    const auto depth = static_cast<int>(at.depth);
    const std::int64_t column = at.column + base::warpgroup_ * 64 * tiles;
    const bool busy = column < base::args_.columns;
    float sums[tiles][Rows / 2], behind[tiles][Second == 0 ? 1 : Second / 2];
    const auto clear = [](auto& all) {
#pragma unroll
      for (auto& tile : all) {
#pragma unroll
        for (float& sum : tile) sum = 0.0f;
      }
    };
    clear(sums);
    clear(behind);
#pragma unroll 1
    for (int k = 0; k < depth; k += Shape::depth) {
      base::stage_place_.wait_full(barriers);
      if (busy) {
        const std::uint32_t stage = base::stage_place_.stage();
        constexpr int panel = 64 * Shape::row_bytes;
        const std::uint64_t w = prim::cuda::describe_panels(
            prim::cuda::shared_address(base::shared_.a[stage]) + base::warpgroup_ * tiles * panel,
            panel);
        const std::uint64_t x = base::stage_of_b(stage);
        constexpr int step_w = AcrossW ? 16 * Shape::row_bytes : 32;
        prim::cuda::begin_products();
#pragma unroll
        for (int step = 0; step < Shape::depth / 16; ++step) {
#pragma unroll
          for (int tile = 0; tile < tiles; ++tile) {
            const std::uint64_t a = w + prim::cuda::panel_step(step * step_w + tile * panel);
            const std::uint64_t b = x + prim::cuda::panel_step(step * 32);
            product<Rows>::template multiply<AcrossW, false>(sums[tile], a, b, true);
            if constexpr (Second > 0) {
              product<Second>::template multiply<AcrossW, false>(
                  behind[tile], a, b + prim::cuda::panel_step(Rows * Shape::row_bytes), true);
            }
          }
        }
        prim::cuda::commit_products();
      }
      prim::cuda::wait_products<1>();
      if (k > 0) base::release();
      base::stage_place_.advance();
    }
    prim::cuda::wait_products<0>();
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
      prim::cuda::keep_in_place(sums[tile]);
      if constexpr (Second > 0) prim::cuda::keep_in_place(behind[tile]);
    }
    if (depth > 0) base::release();
    if (!busy) return;
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
      store(at, 0, column + tile * 64, sums[tile]);
      if constexpr (Second > 0) store(at, Rows, column + tile * 64, behind[tile]);
    }
  }

  /// Sums of rows of the tile from one on, of 64 columns: a tile of 8 x 8 that is turned over has
  /// eight columns in the lanes of a quad, which exchange them so that each stores 16 bytes of a
  /// row.
  template <int Sums>
  __device__ __forceinline__ void store(const tile_place& at, int from, std::int64_t first_column,
                                        const float (&sums)[Sums]) const {
    using words = prim::cuda::half_words<Element>;
    const auto thread = static_cast<int>(threadIdx.x) % prim::cuda::warpgroup_size;
    const int lane = thread % 32, quarter = lane % 4;
    const std::int64_t column = first_column + thread / 32 * 16 + quarter % 2 * 8;
    const grouped_matrix& to = base::args_.to;
    const std::int64_t row = at.row + from + quarter / 2 * 8 + lane / 4;
    auto* const first =
        static_cast<Element*>(to.data) + to.offset(at.stored_matrix(), at.first + row, column);
#pragma unroll
    for (int pair = 0; pair < Sums / 8; ++pair) {  // 16 rows
      std::uint32_t word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* const two = sums + pair * 8 + i * 2;
        word[i] = prim::cuda::transposed_tile(words::pack(two[0], two[1]));
      }
      const uint4 eight = neighbours_of_quad(word);
      if (row + pair * 16 >= at.rows || column >= base::args_.columns) continue;
      *reinterpret_cast<uint4*>(first + pair * 16 * to.row) = eight;
    }
  }
};

/// All tiles of a product of groups of rows with weights that lie as the flag says.
template <class Element, class Shape, bool AcrossW>
__global__ void __launch_bounds__(Shape::threads, 1)
    multiply_transposed(const __grid_constant__ product_launch all) {
  extern __shared__ __align__(1024) unsigned char transposed_bytes[];
  auto& shared = *reinterpret_cast<typename Shape::shared_memory*>(transposed_bytes);
  if (threadIdx.x == 0) {  // published with those that every kernel of panels has
    shared.of_number.init(1, static_cast<int>(prim::cuda::blocks_of_cluster()));
  }
  run_block<Shape>(
      shared, [&] { transposed_producer<Shape, AcrossW>(all, shared).run(); },
      [&](int warpgroup) {
        transposed_consumer<Element, Shape, AcrossW>(all.product, shared, warpgroup).run();
      });
}

}  // namespace tessera::kernels::grouped_matmul::sm90
