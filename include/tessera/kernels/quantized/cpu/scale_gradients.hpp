// Gradients of scales and zeros: with d_w[r, c] = sum over the batch of p[m, r] q[m, c], those of a
// group are sums over its columns. d_w exists a few rows and columns at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/cpu/decode.hpp>
#include <tessera/kernels/quantized/cpu/traits.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::quantized::cpu {

template <class Isa>
class scale_gradients {
 public:
  /// `by_row` has an element for each row of the weights, `by_column` for each column.
  scale_gradients(const quantized_kernel_args& args, const strided_matrix& by_row,
                  const strided_matrix& by_column)
      : args_(args),
        weights_(args.weights),
        by_row_(by_row),
        by_column_(by_column),
        row_stride_(whole_lines(args.weights.rows)),
        column_stride_(whole_blocks(args.weights.columns())) {}

  bool wanted() const { return args_.d_scales.data != nullptr || args_.d_zeros.data != nullptr; }

  std::size_t workspace_bytes(int) const {
    if (!wanted()) return 0;
    return static_cast<std::size_t>(args_.batch * (row_stride_ + column_stride_)) * sizeof(float);
  }

  void run(std::byte* memory, int threads) const {
    if (!wanted()) return;
    auto* const by_column = reinterpret_cast<float*>(memory);
    float* const by_row = by_column + args_.batch * column_stride_;
    prim::parallel_items<Isa>(args_.batch, threads, [&](std::int64_t m, int) {
      load(by_column_, m, weights_.columns(), column_stride_, by_column);
      load(by_row_, m, weights_.rows, row_stride_, by_row);
    });
    const std::int64_t items = (weights_.rows + rows_of_item - 1) / rows_of_item;
    prim::parallel_items<Isa>(items, threads, [&](std::int64_t item, int) {
      add_groups(item * rows_of_item, by_row, by_column);
    });
  }

 private:
  using vec = prim::simd<Isa>;
  using reg = typename vec::reg;
  static constexpr int rows_of_item = 4;
  static constexpr std::int64_t longest_sum = 128;  ///< of the batch, in a register

  static void load(const strided_matrix& from, std::int64_t m, std::int64_t count,
                   std::int64_t stride, float* to) {
    prim::load_row<Isa>(from, m * from.row, count, to + m * stride);
    std::fill(to + m * stride + count, to + (m + 1) * stride, 0.0f);
  }

  /// What the columns of a group have given so far.
  struct group_sums {
    float scale = 0;
    float weight = 0;
  };

  void add_groups(std::int64_t row, const float* by_row, const float* by_column) const {
    const int rows = static_cast<int>(std::min<std::int64_t>(rows_of_item, weights_.rows - row));
    group_sums sums[rows_of_item];
    for (std::int64_t first = 0; first < weights_.columns(); first += most_decoded) {
      const auto count =
          static_cast<int>(std::min<std::int64_t>(most_decoded, weights_.columns() - first));
      alignas(64) float d_w[rows_of_item][most_decoded];
      multiply(by_row + row, by_column + first, static_cast<int>(whole_blocks(count)), d_w);
      for (int r = 0; r < rows; ++r) add_row(row + r, first, count, d_w[r], sums[r]);
    }
  }

  /// d_w of a few rows. Rows behind the last have zeros, up to a whole cache line.
  void multiply(const float* by_row, const float* by_column, int columns,
                float (&d_w)[rows_of_item][most_decoded]) const {
    for (int column = 0; column < columns; column += vec::width) {
      reg total[rows_of_item];
      TESSERA_UNROLL
      for (int r = 0; r < rows_of_item; ++r) total[r] = vec::zero();
      for (std::int64_t first = 0; first < args_.batch; first += longest_sum) {
        const std::int64_t end = std::min(args_.batch, first + longest_sum);
        reg sum[rows_of_item];
        TESSERA_UNROLL
        for (int r = 0; r < rows_of_item; ++r) sum[r] = vec::zero();
        for (std::int64_t m = first; m < end; ++m) {
          const reg x = vec::load(by_column + m * column_stride_ + column);
          TESSERA_UNROLL
          for (int r = 0; r < rows_of_item; ++r) {
            sum[r] = vec::fma(vec::broadcast(by_row[m * row_stride_ + r]), x, sum[r]);
          }
        }
        TESSERA_UNROLL
        for (int r = 0; r < rows_of_item; ++r) total[r] = vec::add(total[r], sum[r]);
      }
      TESSERA_UNROLL
      for (int r = 0; r < rows_of_item; ++r) vec::store(d_w[r] + column, total[r]);
    }
  }

  void add_row(std::int64_t row, std::int64_t first, int count, const float* d_w,
               group_sums& sums) const {
    alignas(64) float weights[most_decoded];
    weight_reader<Isa, decoded_form::unscaled>(weights_).read(row, first, count, weights);
    const int size = static_cast<int>(weights_.group_size);
    const int part = std::min(size, count);
    for (int at = 0; at < count; at += part) {
      add_columns(d_w + at, weights + at, part, sums);
      const std::int64_t end = first + at + part;
      if (end % size != 0) continue;  // the group goes on
      store(row, end / size - 1, sums);
      sums = {};
    }
  }

  static void add_columns(const float* d_w, const float* weights, int count, group_sums& sums) {
    reg scale = vec::zero(), weight = vec::zero();
    for (int at = 0; at < count; at += vec::width) {
      const int lanes = std::min(vec::width, count - at);
      const auto load = [&](const float* from) {
        return lanes == vec::width ? vec::load(from + at) : vec::load_n(from + at, lanes);
      };
      const reg gradient = load(d_w);
      scale = vec::fma(gradient, load(weights), scale);
      weight = vec::add(gradient, weight);
    }
    sums.scale += vec::sum(scale);
    sums.weight += vec::sum(weight);
  }

  void store(std::int64_t row, std::int64_t group, const group_sums& sums) const {
    if (args_.d_scales.data != nullptr) {
      prim::store_element<Isa>(args_.d_scales, row * args_.d_scales.row + group, sums.scale);
    }
    if (args_.d_zeros.data == nullptr) return;
    const bool biased = weights_.form == affine_weight_form::bias;
    const float scale = prim::element_at<Isa>(weights_.scales, row * weights_.scales.row + group);
    prim::store_element<Isa>(args_.d_zeros, row * args_.d_zeros.row + group,
                             biased ? sums.weight : -scale * sums.weight);
  }

  const quantized_kernel_args& args_;
  const packed_weights& weights_;
  const strided_matrix& by_row_;
  const strided_matrix& by_column_;
  std::int64_t row_stride_;
  std::int64_t column_stride_;
};

}  // namespace tessera::kernels::quantized::cpu
