// Products of elements of 8 bits with scales, with wgmma (sm_90a). A depth counts words here, pairs
// of elements, as the copy unit takes them.
//
// Sums of the matrix unit have too few bits for a long axis of f8_e4m3: those of 128 elements are
// multiplied by their scales and added to sums in registers, while the other warpgroup multiplies.
// Sums of i8 are whole numbers; those of 128 elements are exact as floats, too.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/families/grouped_matmul/options.hpp>
#include <tessera/kernels/grouped_matmul/sm90/product.hpp>
#include <tessera/prim/cuda/wgmma_e5m2.hpp>
#include <tessera/spec/float8.hpp>

namespace tessera::kernels::grouped_matmul::sm90 {

/// Scales of the operands; where there are blocks, those of 128 elements lie side by side.
struct operand_scales {
  const float* a = nullptr;
  std::int64_t a_row = 0, a_group = 0;
  const float* b = nullptr;  ///< rows of it are blocks of 128 columns of the result, or columns
  std::int64_t b_row = 0, b_group = 0;
};

struct scaled_launch {
  product_launch all;
  operand_scales scales;
};

/// The scales of the two rows that a thread has sums of; behind the end those of the last row.
struct scales_of_rows {
  const float* row[2];

  __device__ __forceinline__ scales_of_rows(const operand_scales& scales, const tile_place& at,
                                            int first_row) {
    const int thread = static_cast<int>(threadIdx.x) % prim::cuda::warpgroup_size;
    const std::int64_t of_tile = at.row + first_row + thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t inside = of_tile + 8 * half < at.rows ? of_tile + 8 * half : at.rows - 1;
      row[half] =
          scales.a + at.stored_matrix() * scales.a_group + (at.first + inside) * scales.a_row;
    }
  }
};

/// Multiplies sums by the scales of their row and column.
template <class Sum, int Sums>
__device__ __forceinline__ void scale_rows(const operand_scales& scales, const tile_place& at,
                                           std::int64_t columns, int first_row,
                                           const Sum (&from)[Sums], float (&to)[Sums]) {
  const scales_of_rows rows(scales, at, first_row);
  const float of_row[2] = {__ldg(rows.row[0]), __ldg(rows.row[1])};
  const float* const of_columns = scales.b + at.stored_matrix() * scales.b_group;
  const std::int64_t first = at.column + threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < Sums; i += 4) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const std::int64_t column = first + i * 2 + e;
      const float by = column < columns ? __ldg(of_columns + column * scales.b_row) : 0.0f;
      to[i + e] = static_cast<float>(from[i + e]) * (of_row[0] * by);
      to[i + e + 2] = static_cast<float>(from[i + e + 2]) * (of_row[1] * by);
    }
  }
}

/// A warpgroup that multiplies elements of f8, or i8 with scales of blocks.
template <class Element, class Shape, product_scales Scales, class Epilogue>
class scaled_consumer : tile_taker<Shape> {
  using base = tile_taker<Shape>;
  using base::args_, base::stage_place_, base::release;

  static constexpr bool has_blocks = Scales == product_scales::blocks;
  /// So many columns have one scale, wherever a tile begins.
  static constexpr int part = Shape::columns % scale_block == 0 ? 128 : 64;
  static constexpr int parts = Shape::columns / part;

 public:
  __device__ __forceinline__ scaled_consumer(const scaled_launch& launch,
                                             typename Shape::shared_memory& shared, int warpgroup,
                                             const Epilogue& epilogue)
      : base(launch.all.product, shared, warpgroup),
        all_(launch.all),
        scales_(launch.scales),
        epilogue_(epilogue) {}

  __device__ __forceinline__ void run() {
    base::for_each_tile([&](const tile_place& at, int row, bool busy) {
      const int stages = static_cast<int>(ceil_div(at.depth, Shape::depth));
#pragma unroll
      for (float& sum : sums_) sum = 0.0f;
      if (!busy) return skip(stages);
      if (stages > 0) multiply(at, row, stages);
      if (!has_blocks && at.matrix >= 0) {
        scale_rows(scales_, at, args_.columns, row, sums_, sums_);
      }
      base::template store<bf16>(all_, at, row, sums_, epilogue_);
    });
    base::end_stores();
  }

 private:
  /// Scales of 128 elements of the summed axis: of two rows, and of parts of the columns.
  struct factors {
    float a[2], b[parts];
  };

  /// Where they lie.
  struct factor_places {
    scales_of_rows rows;
    const float* b[parts];

    __device__ __forceinline__ factor_places(const operand_scales& scales, const tile_place& at,
                                             int first_row, std::int64_t columns)
        : rows(scales, at, first_row) {
#pragma unroll
      for (int i = 0; i < parts; ++i) {
        const std::int64_t column = at.column + i * part;
        const std::int64_t inside = column < columns ? column : columns - 1;
        b[i] = scales.b + at.stored_matrix() * scales.b_group + inside / scale_block * scales.b_row;
      }
    }
    __device__ __forceinline__ factors at(int block) const {
      factors read;
#pragma unroll
      for (int half = 0; half < 2; ++half) read.a[half] = __ldg(rows.row[half] + block);
#pragma unroll
      for (int i = 0; i < parts; ++i) read.b[i] = __ldg(b[i] + block);
      return read;
    }
  };

  /// Lets the stages of a tile go by.
  __device__ __forceinline__ void skip(int stages) {
    for (int stage = 0; stage < stages; ++stage) {
      stage_place_.wait_full(prim::cuda::shared_address(&this->shared_.of_stage));
      release();
      stage_place_.advance();
    }
  }

  /// Sums of a stage are those of pieces of the columns, each of which has registers of its own:
  /// two of 96 columns, of which one is added while the other is multiplied, or all 128.
  static constexpr int pieces = Shape::columns == 192 ? 2 : 1;
  static constexpr int piece_columns = Shape::columns / pieces;
  using product = prim::cuda::warpgroup_product<Element, piece_columns>;
  using product_sum = typename product::sum_type;
  using piece_sums = product_sum[piece_columns / 2];

  __device__ __forceinline__ void multiply(const tile_place& at, int row, int stages) {
    // Products under way at the end of a round of a loop would wait for each other (nvcc 13.0).
    constexpr int round = pieces;
    const factor_places from(scales_, at, row, args_.columns);
    int stage = 0;
    factors now{};
    if constexpr (has_blocks) now = from.at(0);
#pragma unroll 1
    for (; stage + round <= stages; stage += round)
      multiply_stages<round>(from, stage, stages, now);
    if (round > 1 && stage < stages) multiply_stages<1>(from, stage, stages, now);
  }

  /// So many stages from one on: the products of a piece begin once its last ones are added. `now`
  /// are the factors of the first of them, then those of what follows.
  template <int Stages>
  __device__ __forceinline__ void multiply_stages(const factor_places& from, int first, int stages,
                                                  factors& now) {
    const std::uint32_t barriers = prim::cuda::shared_address(&this->shared_.of_stage);
    piece_sums products[pieces];
    factors next{};
    stage_place_.wait_full(barriers);
#pragma unroll
    for (int piece = 0; piece < pieces; ++piece) begin(products[piece], piece);
    stage_place_.advance();
#pragma unroll
    for (int stage = 1; stage <= Stages; ++stage) {
      const bool last = stage == Stages;
      if (has_blocks && (!last || first + stage < stages)) next = from.at(first + stage);
#pragma unroll
      for (int piece = 0; piece < pieces; ++piece) {
        if (piece + 1 < pieces || !last) {
          prim::cuda::wait_products<pieces - 1>();
        } else {
          prim::cuda::wait_products<0>();
        }
        prim::cuda::keep_in_place(products[piece]);
        if (piece + 1 == pieces) release();
        add(products[piece], piece, now);
        if (last) continue;
        if (piece == 0) stage_place_.wait_full(barriers);
        begin(products[piece], piece);
        if (piece + 1 == pieces) stage_place_.advance();
      }
      now = next;
    }
  }

  /// Begins the products of a piece of the columns of a stage.
  __device__ __forceinline__ void begin(piece_sums& products, int piece) const {
    const std::uint64_t a = base::stage_of_a(stage_place_.stage());
    const std::uint64_t b = base::stage_of_b(stage_place_.stage()) +
                            prim::cuda::panel_step(piece * piece_columns * Shape::row_bytes);
    prim::cuda::begin_products();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      product::scores(products, a + prim::cuda::panel_step(step * 32),
                      b + prim::cuda::panel_step(step * 32), step > 0);
    }
    prim::cuda::commit_products();
  }

  __device__ __forceinline__ void add(const piece_sums& products, int piece, const factors& scale) {
#pragma unroll
    for (int i = 0; i < piece_columns / 2; ++i) {
      const int at = piece * (piece_columns / 2) + i;
      const auto product = static_cast<float>(products[i]);
      const float by = scale.a[i / 2 % 2] * scale.b[at / (part / 2)];
      sums_[at] = has_blocks ? fmaf(product, by, sums_[at]) : sums_[at] + product;
    }
  }

  const product_launch& all_;
  const operand_scales& scales_;
  const Epilogue& epilogue_;
  float sums_[Shape::columns / 2];
};

/// A warpgroup that multiplies i8 with scales of rows: sums are whole numbers until all elements
/// are added.
template <class Shape, class Epilogue>
class whole_number_consumer : consumer<std::int8_t, Shape, false, false> {
  using base = consumer<std::int8_t, Shape, false, false>;

 public:
  __device__ __forceinline__ whole_number_consumer(const scaled_launch& launch,
                                                   typename Shape::shared_memory& shared,
                                                   int warpgroup, const Epilogue& epilogue)
      : base(launch.all.product, shared, warpgroup),
        all_(launch.all),
        scales_(launch.scales),
        epilogue_(epilogue) {}

  __device__ __forceinline__ void run() {
    base::for_each_tile([&](const tile_place& at, int row, bool busy) {
      base::multiply(static_cast<int>(at.depth), busy);
      if (!busy) return;
      float sums[Shape::columns / 2]{};
      if (at.matrix >= 0) {
        scale_rows(scales_, at, this->args_.columns, row, this->sums_, sums);
      }
      base::template store<bf16>(all_, at, row, sums, epilogue_);
    });
    base::end_stores();
  }

 private:
  const product_launch& all_;
  const operand_scales& scales_;
  const Epilogue& epilogue_;
};

/// All tiles of a product of elements of 8 bits, both along the summed axis.
template <class Element, class Shape, product_scales Scales, class Epilogue>
__global__ void __launch_bounds__(Shape::threads, 1)
    multiply_scaled(const __grid_constant__ scaled_launch launch,
                    const __grid_constant__ Epilogue epilogue) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  auto& shared = *reinterpret_cast<typename Shape::shared_memory*>(bytes);
  run_block<Shape, false, false>(launch.all, shared, [&](int warpgroup) {
    if constexpr (std::is_same_v<Element, std::int8_t> && Scales == product_scales::rows) {
      whole_number_consumer<Shape, Epilogue>(launch, shared, warpgroup, epilogue).run();
    } else {
      scaled_consumer<Element, Shape, Scales, Epilogue>(launch, shared, warpgroup, epilogue).run();
    }
  });
}

}  // namespace tessera::kernels::grouped_matmul::sm90
