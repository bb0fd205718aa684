// out[m, r] = sum over columns c of a[m, c] w[r, c]: dot products with rows of packed weights. Each
// weight is decoded once for up to 256 rows of the batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/cpu/batch_parts.hpp>
#include <tessera/kernels/quantized/cpu/decode.hpp>
#include <tessera/kernels/quantized/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/microkernel.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::quantized::cpu {

template <class Isa>
class column_product {
 public:
  /// `out` has the batch rows of `a`.
  column_product(const quantized_kernel_args& args, const strided_matrix& a,
                 const strided_matrix& out)
      : args_(args),
        weights_(args.weights),
        a_(a),
        out_(out),
        stride_(whole_blocks(weights_.columns())),
        paired_(weight_reader<Isa>::pairs(weights_)) {}

  std::size_t workspace_bytes(int threads) const {
    return batch_parts<Isa>::bytes(args_) +
           static_cast<std::size_t>(args_.batch * stride_ + threads * floats_of_thread) *
               sizeof(float);
  }

  void run(std::byte* memory, int threads) const {
    const batch_parts<Isa> parts(args_, memory);
    auto* const a = reinterpret_cast<float*>(memory + batch_parts<Isa>::bytes(args_));
    prim::parallel_items<Isa>(args_.batch, threads, [&](std::int64_t m, int) {
      if (!parts.holds(m)) return store_zeros<Isa>(out_, m, weights_.rows);
      load(m, a + m * stride_);
    });
    float* const scratch = a + args_.batch * stride_;
    parts.run_tiles(weights_, rows_of_tile, threads,
                    [&](std::int64_t row, int rows, const batch_part& part, int thread) {
                      float* const own = scratch + thread * floats_of_thread;
                      multiply(weights_.at(part.matrix), {row, rows, part.first, part.rows},
                               a + part.first * stride_, own, own + rows_of_tile * most_decoded);
                    });
  }

 private:
  using vec = prim::simd<Isa>;
  using reg = typename vec::reg;
  using registers = register_tile<Isa>;
  using reader_type = weight_reader<Isa>;
  static constexpr int rows_of_tile = 16;
  static constexpr int most_fused = 4;  ///< rows of a part whose products meet no decoded weights
  /// Decoded weights, and sums.
  static constexpr std::int64_t floats_of_thread =
      rows_of_tile * most_decoded + batch_of_item * rows_of_tile;

  /// Rows of weights and of the batch.
  struct tile {
    std::int64_t row;
    int rows;
    std::int64_t batch_row;
    int batch;
  };

  /// A row of the batch as floats, zeros behind it.
  void load(std::int64_t m, float* to) const {
    const std::int64_t columns = weights_.columns();
    prim::load_row<Isa>(a_, m * a_.row, columns, to);
    std::fill(to + columns, to + stride_, 0.0f);
    if (paired_) pair_columns(to);
  }

  /// A row of the batch in paired order.
  void pair_columns(float* row) const {
    constexpr int block = prim::nibble_lanes<Isa>::block;
    float own[block];
    for (std::int64_t column = 0; column < weights_.columns(); column += block) {
      std::copy(row + column, row + column + block, own);
      for (int i = 0; i < block; ++i) row[column + i % 2 * (block / 2) + i / 2] = own[i];
    }
  }

  void multiply(const packed_weights& weights, const tile& at, const float* a, float* decoded,
                float* sums) const {
    const weight_reader<Isa> reader(weights);
    std::fill(sums, sums + at.batch * rows_of_tile, 0.0f);
    if (paired_ && at.batch <= most_fused) {
      for (int r = 0; r < at.rows; r += vec::width) {
        prim::for_each_row_tile<most_fused>(at.batch, [&]<int Rows>(int m) {
          add_fused<Rows>(reader, at, r, a + m * stride_, sums + m * rows_of_tile + r);
        });
      }
      store(at, sums);
      return;
    }
    std::fill(decoded, decoded + rows_of_tile * most_decoded, 0.0f);
    for (std::int64_t first = 0; first < weights_.columns(); first += most_decoded) {
      const auto count =
          static_cast<int>(std::min<std::int64_t>(most_decoded, weights_.columns() - first));
      for (int r = 0; r < at.rows; ++r) {
        float* const to = decoded + r * most_decoded;
        if (paired_) {
          typename reader_type::numbers_of_groups numbers;
          reader.read_numbers(at.row + r, first, count, numbers);
          const std::int64_t row[1] = {at.row + r};
          reader.read_pairs(row, first, count, &numbers, 0, bytes_ahead(first),
                            [to](int, int column, reg even, reg odd) {
                              vec::store(to + column, even);
                              vec::store(to + column + vec::width, odd);
                            });
        } else {
          reader.read(at.row + r, first, count, to);
        }
      }
      const int columns = static_cast<int>(whole_blocks(count));
      for (int r = 0; r < at.rows; r += registers::dot_rows) {
        const float* const rows = decoded + r * most_decoded;
        prim::for_each_row_tile<registers::dot_batch>(at.batch, [&]<int Rows>(int m) {
          add_dot_products<Rows>(a + m * stride_ + first, rows, columns,
                                 sums + m * rows_of_tile + r);
        });
      }
    }
    store(at, sums);
  }

  /// From codes of a step of a row to what is read next of it, or of the row of the next tile.
  std::int64_t bytes_ahead(std::int64_t first) const {
    if (first + most_decoded < weights_.columns()) return most_decoded / 2;
    return 4 * rows_of_tile * weights_.codes.row - first / 2;
  }

  void store(const tile& at, const float* sums) const {
    for (int m = 0; m < at.batch; ++m) {
      prim::store_row<Isa>(out_, (at.batch_row + m) * out_.row + at.row, at.rows,
                           sums + m * rows_of_tile);
    }
  }

  /// The sums of a few rows of the batch and as many rows of weights as a register has floats,
  /// which are multiplied as they are decoded: the terms of add_dot_products in the same order. Few
  /// rows of the batch go with several of weights: one sum after the other would be waited for.
  template <int Rows>
  void add_fused(const weight_reader<Isa>& reader, const tile& at, int first_row, const float* a,
                 float* sums) const {
    // Numbers of several steps at a time: as many groups as a row of them holds.
    const std::int64_t steps =
        std::max<std::int64_t>(1, reader_type::most_groups * weights_.group_size / most_decoded);
    constexpr int most_sums = vec::width == 16 ? 4 : vec::width == 8 ? 2 : 1;
    constexpr int sums_together = most_sums > Rows ? most_sums / Rows : 1;
    typename reader_type::numbers_of_groups numbers[vec::width];
    for (std::int64_t first = 0; first < weights_.columns(); first += most_decoded) {
      const std::int64_t left = weights_.columns() - first;
      const std::int64_t step = first / most_decoded % steps;
      if (step == 0) {
        const auto together = static_cast<int>(std::min(steps * most_decoded, left));
        for (int r = 0; r < vec::width; ++r) {
          reader.read_numbers(at.row + std::min(first_row + r, at.rows - 1), first, together,
                              numbers[r]);
        }
      }
      const auto count = static_cast<int>(std::min<std::int64_t>(most_decoded, left));
      const auto skipped = static_cast<int>(step * most_decoded / weights_.group_size);
      reg products[Rows][vec::width];
      for (int r = 0; r < vec::width; r += sums_together) {
        std::int64_t rows[sums_together];
        reg sum[Rows][sums_together];
        TESSERA_UNROLL
        for (int j = 0; j < sums_together; ++j) {
          rows[j] = at.row + std::min(first_row + r + j, at.rows - 1);
          TESSERA_UNROLL
          for (int i = 0; i < Rows; ++i) sum[i][j] = vec::zero();
        }
        reader.read_pairs(rows, first, count, numbers + r, skipped, bytes_ahead(first),
                          [&](int j, int column, reg even, reg odd) {
                            TESSERA_UNROLL
                            for (int i = 0; i < Rows; ++i) {
                              const float* const x = a + i * stride_ + first + column;
                              sum[i][j] = vec::fma(vec::load(x), even, sum[i][j]);
                              sum[i][j] = vec::fma(vec::load(x + vec::width), odd, sum[i][j]);
                            }
                          });
        TESSERA_UNROLL
        for (int i = 0; i < Rows; ++i) {
          TESSERA_UNROLL
          for (int j = 0; j < sums_together; ++j) products[i][r + j] = sum[i][j];
        }
      }
      TESSERA_UNROLL
      for (int i = 0; i < Rows; ++i) {
        float* const own = sums + i * rows_of_tile;
        vec::store(own, vec::add(vec::load(own), vec::sums(products[i])));
      }
    }
  }

  template <int Rows>
  TESSERA_INLINE void add_dot_products(const float* a, const float* decoded, int columns,
                                       float* sums) const {
    constexpr int weights = registers::dot_rows;
    reg products[vec::width];
    TESSERA_UNROLL
    for (int i = 0; i < vec::width; ++i) products[i] = vec::zero();
    for (int column = 0; column < columns; column += vec::width) {
      reg w[weights];
      TESSERA_UNROLL
      for (int j = 0; j < weights; ++j) w[j] = vec::load(decoded + j * most_decoded + column);
      TESSERA_UNROLL
      for (int i = 0; i < Rows; ++i) {
        const reg x = vec::load(a + i * stride_ + column);
        TESSERA_UNROLL
        for (int j = 0; j < weights; ++j) {
          products[i * weights + j] = vec::fma(x, w[j], products[i * weights + j]);
        }
      }
    }
    float totals[vec::width];
    vec::store(totals, vec::sums(products));
    for (int i = 0; i < Rows; ++i) {
      for (int j = 0; j < weights; ++j) sums[i * rows_of_tile + j] += totals[i * weights + j];
    }
  }

  const quantized_kernel_args& args_;
  const packed_weights& weights_;  ///< sizes and forms of all matrices are the same
  const strided_matrix& a_;
  const strided_matrix& out_;
  std::int64_t stride_;  ///< of the batch as floats
  bool paired_;          ///< weights and the batch are in paired order
};

}  // namespace tessera::kernels::quantized::cpu
