// out[m, r] = sum over columns c of a[m, c] w[r, c]: dot products with rows of packed weights. Each
// weight is decoded once for up to 256 rows of the batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/quantized/kernel_args.hpp>
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
  column_product(const packed_weights& weights, const strided_matrix& a, const strided_matrix& out,
                 std::int64_t batch)
      : weights_(weights),
        a_(a),
        out_(out),
        batch_(batch),
        stride_(whole_blocks(weights.columns())) {}

  std::size_t workspace_bytes(int threads) const {
    return static_cast<std::size_t>(batch_ * stride_ + threads * floats_of_thread) * sizeof(float);
  }

  void run(std::byte* memory, int threads) const {
    auto* const a = reinterpret_cast<float*>(memory);
    prim::parallel_items<Isa>(batch_, threads, [&](std::int64_t m, int) {
      float* const to = a + m * stride_;
      const std::int64_t columns = weights_.columns();
      prim::load_row<Isa>(a_, m * a_.row, columns, to);
      std::fill(to + columns, to + stride_, 0.0f);
    });
    const std::int64_t tiles = (weights_.rows + rows_of_tile - 1) / rows_of_tile;
    const std::int64_t blocks = (batch_ + batch_of_item - 1) / batch_of_item;
    prim::parallel_items<Isa>(tiles * blocks, threads, [&](std::int64_t item, int thread) {
      float* const scratch = a + batch_ * stride_ + thread * floats_of_thread;
      const std::int64_t row = item / blocks * rows_of_tile, m = item % blocks * batch_of_item;
      const tile at{row,
                    static_cast<int>(std::min<std::int64_t>(rows_of_tile, weights_.rows - row)), m,
                    static_cast<int>(std::min(batch_of_item, batch_ - m))};
      multiply(at, a + m * stride_, scratch, scratch + rows_of_tile * most_decoded);
    });
  }

 private:
  using vec = prim::simd<Isa>;
  using reg = typename vec::reg;
  using registers = register_tile<Isa>;
  static constexpr int rows_of_tile = 16;
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

  void multiply(const tile& at, const float* a, float* decoded, float* sums) const {
    const weight_reader<Isa> reader(weights_);
    std::fill(sums, sums + at.batch * rows_of_tile, 0.0f);
    std::fill(decoded, decoded + rows_of_tile * most_decoded, 0.0f);
    for (std::int64_t first = 0; first < weights_.columns(); first += most_decoded) {
      const auto count =
          static_cast<int>(std::min<std::int64_t>(most_decoded, weights_.columns() - first));
      for (int r = 0; r < at.rows; ++r) {
        reader.read(at.row + r, first, count, decoded + r * most_decoded);
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
    for (int m = 0; m < at.batch; ++m) {
      prim::store_row<Isa>(out_, (at.batch_row + m) * out_.row + at.row, at.rows,
                           sums + m * rows_of_tile);
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

  const packed_weights& weights_;
  const strided_matrix& a_;
  const strided_matrix& out_;
  std::int64_t batch_;
  std::int64_t stride_;  ///< of the batch as floats
};

}  // namespace tessera::kernels::quantized::cpu
