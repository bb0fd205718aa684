// out[m, c] = sum over rows r of a[m, r] w[r, c]: outer products with rows of packed weights.
// Blocks of weights are decoded into panels, once for up to 256 rows of the batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/cpu/batch_parts.hpp>
#include <tessera/kernels/quantized/cpu/decode.hpp>
#include <tessera/kernels/quantized/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/panels.hpp>
#include <tessera/prim/cpu/gemm/product.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::quantized::cpu {

template <class Isa>
class row_product {
 public:
  /// `out` has the batch rows of `a`.
  row_product(const quantized_kernel_args& args, const strided_matrix& a, const strided_matrix& out)
      : args_(args),
        weights_(args.weights),
        a_(a),
        out_(out),
        blocks_of_rows_((weights_.rows + block - 1) / block) {}

  std::size_t workspace_bytes(int threads) const {
    return batch_parts<Isa>::bytes(args_) +
           static_cast<std::size_t>(floats_of_a() + threads * floats_of_thread) * sizeof(float);
  }

  void run(std::byte* memory, int threads) const {
    const batch_parts<Isa> parts(args_, memory);
    auto* const a = reinterpret_cast<float*>(memory + batch_parts<Isa>::bytes(args_));
    prim::parallel_items<Isa>(args_.batch, threads, [&](std::int64_t m, int) {
      if (!parts.holds(m)) return store_zeros<Isa>(out_, m, weights_.columns());
      load(m, a);
    });
    float* const scratch = a + floats_of_a();
    const std::int64_t tiles = (weights_.columns() + block - 1) / block;
    prim::parallel_items<Isa>(parts.items(tiles), threads, [&](std::int64_t item, int thread) {
      parts.run_item(item, tiles, [&](std::int64_t number, const batch_part& part) {
        multiply(weights_.at(part.matrix), number * block, part, a,
                 scratch + thread * floats_of_thread);
      });
    });
  }

 private:
  using vec = prim::simd<Isa>;
  using registers = register_tile<Isa>;
  using panels = prim::panels<Isa, registers::outer_vectors>;
  static constexpr int block = 128;  ///< rows and columns of weights that are decoded together
  /// A block of weights in panels, and sums.
  static constexpr std::int64_t floats_of_thread = block * block + batch_of_item * block;

  std::int64_t floats_of_a() const { return blocks_of_rows_ * args_.batch * block; }
  /// Row m of the batch as far as it meets a block of rows of weights.
  float* row_of(float* a, std::int64_t block_of_rows, std::int64_t m) const {
    return a + (block_of_rows * args_.batch + m) * block;
  }

  void load(std::int64_t m, float* a) const {
    for (std::int64_t b = 0; b < blocks_of_rows_; ++b) {
      const std::int64_t count = std::min<std::int64_t>(block, weights_.rows - b * block);
      prim::load_row<Isa>(a_, m * a_.row + b * block, count, row_of(a, b, m));
    }
  }

  void multiply(const packed_weights& weights, std::int64_t column, const batch_part& part,
                float* a, float* scratch) const {
    const weight_reader<Isa> reader(weights);
    float* const sums = scratch + block * block;
    const auto count = static_cast<int>(std::min<std::int64_t>(block, weights_.columns() - column));
    std::fill(sums, sums + part.rows * block, 0.0f);
    for (std::int64_t b = 0; b < blocks_of_rows_; ++b) {
      const auto rows = static_cast<int>(std::min<std::int64_t>(block, weights_.rows - b * block));
      const panels decoded{scratch, rows, static_cast<int>(prim::padded<Isa>(count))};
      decode(reader, b * block, column, count, decoded);
      prim::product<prim::product_kind::add, prim::f32_words<Isa>, registers::outer_batch, block>(
          row_of(a, b, part.first), part.rows, decoded, {0, rows}, {0, decoded.columns}, sums,
          block);
    }
    for (int i = 0; i < part.rows; ++i) {
      prim::store_row<Isa>(out_, (part.first + i) * out_.row + column, count, sums + i * block);
    }
  }

  static void decode(const weight_reader<Isa>& reader, std::int64_t row, std::int64_t column,
                     int count, const panels& to) {
    for (int r = 0; r < to.words; ++r) {
      alignas(64) float weights[block];
      reader.read(row + r, column, count, weights);
      for (int c = 0; c < to.columns; c += vec::width) {
        vec::store(to.at(r, c), vec::load(weights + c));
      }
    }
  }

  const quantized_kernel_args& args_;
  const packed_weights& weights_;  ///< sizes and forms of all matrices are the same
  const strided_matrix& a_;
  const strided_matrix& out_;
  std::int64_t blocks_of_rows_;
};

}  // namespace tessera::kernels::quantized::cpu
