// Products of f32 operands by multiply-adds, and of any others: elements become floats on their way
// to shared memory. A block owns a tile of the result and goes along the summed axis; a thread owns
// 16x8 of it, or 8x8 of a small tile, in blocks of 4x4.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/kernels/grouped_matmul/sm80/operand.hpp>
#include <tessera/kernels/grouped_matmul/sm80/product.hpp>
#include <tessera/kernels/grouped_matmul/sm80/result.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/pipeline.hpp>

namespace tessera::kernels::grouped_matmul::sm80 {

/// Elements of the summed axis in a tile of floats.
inline constexpr int float_depth = 16;

template <int Rows, int Columns>
struct float_shape {
  static constexpr int rows = Rows, columns = Columns;
  static constexpr int thread_rows = Rows > 64 ? 16 : 8;
  static constexpr int warp_rows = thread_rows * 4;
  static constexpr int warp_columns = Columns / 64;  ///< warps side by side
  static constexpr int threads = 32 * (Rows / warp_rows) * warp_columns;
  static constexpr int blocks = thread_rows > 8 ? 2 : 4;  ///< of a multiprocessor
  static constexpr int stages = 4;
  static constexpr int a_bytes = float_depth * (Rows + 4) * 4;
  static constexpr int stage_bytes = a_bytes + float_depth * (Columns + 4) * 4;
  static constexpr int tiles_at = 128;  ///< of operands, then of sums; in front is the tile's place

  static constexpr int shared_bytes =
      tiles_at + staged_result<Rows, Columns>::or_more(stages * stage_bytes);
};

/// Tiles of an operand: 16 rows along the summed axis of `Extent` floats and 4 of padding, so that
/// neither writing along that axis nor across it has bank conflicts. A thread has elements 8 apart
/// along it, and others beside them.
template <int Extent, bool Across, int Threads>
struct float_tile {
  static constexpr int stride = Extent + 4;
  static constexpr int beside = Extent * 8 / Threads;
  static constexpr int k_step = Across ? Threads / Extent : 0;
  static constexpr int at_step = Across ? 0 : Threads / 8;

  /// The first element of a thread.
  static __device__ __forceinline__ int first_k() {
    const int thread = static_cast<int>(threadIdx.x);
    return Across ? thread / Extent : thread % 8;
  }
  static __device__ __forceinline__ int first_at() {
    const int thread = static_cast<int>(threadIdx.x);
    return Across ? thread % Extent : thread / 8;
  }
  static __device__ __forceinline__ std::uint32_t offset(int k, int at) {
    return static_cast<unsigned>(k * stride + at) * 4;
  }
};

/// Copies tiles of f32, one after the other.
template <int Extent, bool Across, int Threads>
class float_copy {
  using tile = float_tile<Extent, Across, Threads>;

 public:
  __device__ __forceinline__ explicit float_copy(const operand_part& part)
      : row_(part.of->matrix.row), left_(part.depth - tile::first_k()) {
    const int k = tile::first_k(), at = tile::first_at();
    from_ = static_cast<const float*>(part.of->matrix.data) + part.offset() +
            (Across ? k * row_ + at : at * row_ + k);
    to_ = tile::offset(k, at);
#pragma unroll
    for (int j = 0; j < tile::beside; ++j) {
      if (at + j * tile::at_step < part.extent) held_ |= 1u << j;
    }
  }

  __device__ __forceinline__ void start(std::uint32_t to) {
    const int left = static_cast<int>(left_ < float_depth ? left_ : float_depth);
    const float* from = from_;
#pragma unroll
    for (int j = 0; j < 2 * tile::beside; ++j) {
      const int k = Across ? j * tile::k_step : j % 2 * 8;
      const int at = Across ? 0 : j / 2 * tile::at_step;
      const bool wanted = k < left && (held_ >> (Across ? 0 : j / 2) & 1u) != 0;
      prim::cuda::copy_async_4(to + to_ + tile::offset(k, at), from + (Across ? 0 : k), wanted);
      if (Across) from += tile::k_step * row_;
      if (!Across && j % 2 == 1) from += tile::at_step * row_;
    }
    from_ += Across ? float_depth * row_ : float_depth;
    left_ -= float_depth;
  }

 private:
  const float* from_;
  std::int64_t row_;
  std::int64_t left_;
  std::uint32_t held_ = 0, to_;
};

/// Fills tiles with elements of any type and their scales.
template <int Extent, int Threads>
class float_read {
 public:
  __device__ __forceinline__ explicit float_read(const operand_part& part) : part_(part) {}

  __device__ __forceinline__ void start(std::uint32_t to) {
    if (part_.of->across) {
      fill<float_tile<Extent, true, Threads>>(to);
    } else {
      fill<float_tile<Extent, false, Threads>>(to);
    }
    done_ += float_depth;
  }

 private:
  template <class Tile>
  __device__ __forceinline__ void fill(std::uint32_t to) const {
#pragma unroll 1
    for (int i = 0; i < 2 * Tile::beside; ++i) {
      const int k = Tile::first_k() + i % 2 * 8 + i / 2 * Tile::k_step;
      const int at = Tile::first_at() + i / 2 * Tile::at_step;
      const bool held = done_ + k < part_.depth && at < part_.extent;
      const float x = held ? part_.value(at, done_ + k) : 0.0f;
      prim::cuda::store_shared_4(to + Tile::offset(k, at), __float_as_uint(x));
    }
  }

  operand_part part_;
  std::int64_t done_ = 0;
};

/// A thread's part of the sums.
template <int Rows>
struct thread_sums {
  float at[Rows][8] = {};
  int row = 0, column = 0;  ///< of its first element in the tile

  template <class Visit>
  __device__ __forceinline__ void for_each_pair(const Visit& visit) const {
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
#pragma unroll
      for (int c = 0; c < 8; c += 2) {
        visit(row + r % 4 + r / 4 * 16, column + c % 4 + c / 4 * 32, at[r][c], at[r][c + 1]);
      }
    }
  }
};

/// Operands of a thread for one element of the summed axis.
template <int Rows>
struct thread_operands {
  std::uint32_t a[Rows / 4][4], b[2][4];

  __device__ __forceinline__ void load(std::uint32_t of_a, std::uint32_t of_b) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      prim::cuda::load_shared_16(b[i], of_b + static_cast<unsigned>(i * 32 * 4));
    }
#pragma unroll
    for (int i = 0; i < Rows / 4; ++i) {
      prim::cuda::load_shared_16(a[i], of_a + static_cast<unsigned>(i * 16 * 4));
    }
  }

  __device__ __forceinline__ void multiply_add(thread_sums<Rows>& sums) const {
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int c = r % 2 == 0 ? i : 7 - i;  // begins where the row before ended
        sums.at[r][c] =
            fmaf(__uint_as_float(a[r / 4][r % 4]), __uint_as_float(b[c / 4][c % 4]), sums.at[r][c]);
      }
    }
  }
};

/// A tile of the result for each block; see `place_of`. Without `Direct`, which means f32, operands
/// are stored anyhow.
template <class Shape, bool AcrossA, bool AcrossB, bool Direct, class Epilogue>
__global__ void __launch_bounds__(Shape::threads, Shape::blocks)
    multiply_floats(const __grid_constant__ product_args args, const Epilogue epilogue) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const tile_place at = place_of(args, blockIdx.x, Shape::rows, Shape::columns);
  if (!at.exists) return;
  // Read again at the end, so that no register holds it till then.
  tile_place& kept = *reinterpret_cast<tile_place*>(shared);
  if (threadIdx.x == 0) kept = at;

  using copy_a = std::conditional_t<Direct, float_copy<Shape::rows, AcrossA, Shape::threads>,
                                    float_read<Shape::rows, Shape::threads>>;
  using copy_b = std::conditional_t<Direct, float_copy<Shape::columns, AcrossB, Shape::threads>,
                                    float_read<Shape::columns, Shape::threads>>;
  copy_a of_a(operand_part::of_a(args, at));
  copy_b of_b(operand_part::of_b(args, at));

  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  thread_sums<Shape::thread_rows> sums;
  // Lanes next to each other have the same rows, those two apart the same columns: then 16 lanes
  // load their 16 bytes at once.
  sums.row = warp / Shape::warp_columns * Shape::warp_rows + ((lane / 2 & 1) | (lane / 8 & 2)) * 4;
  sums.column = warp % Shape::warp_columns * 64 + ((lane & 1) | (lane / 2 & 6)) * 4;
  const std::uint32_t base = prim::cuda::shared_address(shared) + Shape::tiles_at;
  const std::uint32_t lane_a = base + static_cast<unsigned>(sums.row * 4);
  const std::uint32_t lane_b = base + Shape::a_bytes + static_cast<unsigned>(sums.column * 4);

  using pipeline = prim::cuda::pipeline<Shape::stages>;
  pipeline pipe;
  const auto tiles = static_cast<int>(ceil_div(at.depth, float_depth));
  // No branches: what lies behind the last tile becomes zeros.
  const auto start = [&](int stage) {
    const std::uint32_t to = base + static_cast<unsigned>(stage * Shape::stage_bytes);
    of_a.start(to);
    of_b.start(to + Shape::a_bytes);
    pipe.commit();
  };
  thread_operands<Shape::thread_rows> operands[2];
  const auto load = [&](int k) {
    const auto stage = static_cast<unsigned>(pipe.stage() * Shape::stage_bytes);
    operands[k % 2].load(lane_a + stage + static_cast<unsigned>(k * (Shape::rows + 4) * 4),
                         lane_b + stage + static_cast<unsigned>(k * (Shape::columns + 4) * 4));
  };
#pragma unroll
  for (int stage = 0; stage < Shape::stages; ++stage) start(stage);
  pipe.template wait<Shape::stages - 1>();
  load(0);
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
    for (int k = 0; k < float_depth; ++k) {
      if (k + 1 < float_depth) {
        load(k + 1);
      } else {
        pipe.advance();
        load(0);
      }
      if (k + 2 == float_depth) {
        // All of the tile is in registers: another may take its place.
        pipe.template wait<Shape::stages - 2>();
        start(pipe.stage());
      }
      operands[k % 2].multiply_add(sums);
    }
  }
  pipe.drain();
  store_result<Shape::rows, Shape::columns, Shape::threads>(
      args, kept, reinterpret_cast<float*>(shared + Shape::tiles_at), sums, epilogue);
}

}  // namespace tessera::kernels::grouped_matmul::sm80
