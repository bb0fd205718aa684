// Products with packed weights and their gradients on a GPU: a few rows of x as thin_product.hpp
// says; else weights are decoded, a part of the result's columns at a time that a second-level
// cache holds, and multiplied as grouped_matmul/sm80 multiplies. Weights are rounded once, to what
// is multiplied.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <cuda_runtime.h>

#include <tessera/families/grouped_matmul/config.hpp>
#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/grouped_matmul/sm80/launch.hpp>
#include <tessera/kernels/quantized/sm80/decode.hpp>
#include <tessera/kernels/quantized/sm80/thin_product.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::quantized::sm80 {

/// The kernels of products of decoded weights.
template <dtype Type>
struct factor_row {
  static constexpr grouped_matmul_config config{.target = backend::cuda_sm80, .type = Type};
};

/// Bytes of decoded weights at a time, about.
inline constexpr std::int64_t decoded_bytes = 32 << 20;

/// How many of `count` lines of `bytes` are there at a time: whole tiles of a product.
constexpr std::int64_t lines_together(std::int64_t count, std::int64_t bytes) {
  constexpr std::int64_t tile = 128;
  const std::int64_t fitting = decoded_bytes / std::max<std::int64_t>(bytes, 1) / tile * tile;
  return std::min(count, std::max(fitting, tile));
}

/// A launch of either direction.
template <dtype Type, bool Backward>
class product_row {
  using multiplied = element_t<Type>;

 public:
  product_row(const quantized_kernel_args& args, std::byte* workspace)
      : args_(args), weights_(args.weights) {
    cuda::workspace_parts parts(workspace);
    parts.take(decoded_,
               sums_columns() ? together_ * weights_.columns() : together_ * weights_.rows);
    bytes_ = parts.bytes();
    if (!wants_scales()) return;
    cuda::workspace_parts others(workspace);  // one after the other
    others.take(d_w_, lines_together(weights_.rows, weights_.columns() * 4) * weights_.columns());
    bytes_ = std::max(bytes_, others.bytes());
  }

  static auto entries() {
    const auto factors = grouped_matmul::sm80::row_kernels<factor_row<Type>>::entries();
    const std::array own{cuda::entry_of(&decode_weights), cuda::entry_of(&sum_groups)};
    constexpr std::size_t thin = has_thin ? 4 : 0;
    std::array<prim::cuda::kernel_entry,
               std::tuple_size_v<decltype(factors)> + std::tuple_size_v<decltype(own)> + thin>
        all;
    std::copy(own.begin(), own.end(), std::copy(factors.begin(), factors.end(), all.begin()));
    if constexpr (has_thin) {
      for (std::size_t i = 0; i < thin; ++i) {
        all[all.size() - thin + i] = cuda::entry_of(thin_of(i / 2 != 0, i % 2 != 0));
      }
    }
    return all;
  }
  std::size_t bytes() const { return bytes_; }

  status launch(cudaStream_t stream) {
    stream_ = stream;
    if (is_thin()) return multiply_rows();
    const std::int64_t results = sums_columns() ? weights_.rows : weights_.columns();
    for (std::int64_t first = 0; first < results; first += together_) {
      if (status done = multiply(first, std::min(together_, results - first)); !done) return done;
    }
    return wants_scales() ? differentiate_scales() : status();
  }

 private:
  static constexpr bool has_thin = !Backward && Type != dtype::f32;

  /// Whether there are few rows, and codes and x lie as they are read then.
  bool is_thin() const {
    if (!has_thin || args_.transposed || args_.batch == 0 || args_.batch > thin_rows) return false;
    if (weights_.bits != 4 && weights_.bits != 8) return false;
    if (args_.x.type != Type || weights_.columns() % thin_piece != 0) return false;
    const auto bits = reinterpret_cast<std::uintptr_t>(weights_.codes.data) |
                      reinterpret_cast<std::uintptr_t>(args_.x.data) |
                      static_cast<std::uintptr_t>(weights_.codes.row * 4) |
                      static_cast<std::uintptr_t>(args_.x.row * 2);
    return bits % 16 == 0;
  }
  using thin_kernel = void (*)(quantized_kernel_args);
  static thin_kernel thin_of(bool of_bytes, bool of_two_tiles) {
    if constexpr (has_thin) {
      if (of_bytes) {
        return of_two_tiles ? &multiply_thin<multiplied, 8, 2> : &multiply_thin<multiplied, 8, 1>;
      }
      return of_two_tiles ? &multiply_thin<multiplied, 4, 2> : &multiply_thin<multiplied, 4, 1>;
    } else {
      return nullptr;
    }
  }
  status multiply_rows() const {
    const std::int64_t blocks = (weights_.rows + thin_outputs - 1) / thin_outputs;
    if (blocks == 0) return {};
    return cuda::launched(prim::cuda::launch_kernel(thin_of(weights_.bits == 8, args_.batch > 8),
                                                    cuda::grid_of(blocks), thin_warps * 32, 0,
                                                    stream_, false, args_));
  }

  /// Whether columns of the weights are what is summed over: outputs have the groups, backward
  /// inputs.
  bool sums_columns() const { return args_.transposed == Backward; }
  bool wants_scales() const {
    return Backward && (args_.d_scales.data != nullptr || args_.d_zeros.data != nullptr);
  }

  static grouped_matrix rows_of(const strided_matrix& of) {
    grouped_matrix matrix;
    matrix.data = of.data;
    matrix.type = of.type;
    matrix.row = of.row;
    return matrix;
  }
  static grouped_matrix columns_of(const strided_matrix& of, std::int64_t first) {
    grouped_matrix part = rows_of(of);
    part.data =
        static_cast<std::byte*>(of.data) + first * static_cast<std::int64_t>(size_of(of.type));
    return part;
  }

  /// Columns [first, first + count) of the result.
  status multiply(std::int64_t first, std::int64_t count) {
    const bool by_row = sums_columns();
    const std::int64_t columns = by_row ? weights_.columns() : count;
    const strided_matrix decoded{.data = decoded_, .type = Type, .row = columns, .column = 1};
    decode_range range{.rows = weights_.rows, .units = columns / unit_columns};
    if (by_row) {
      range.row = first;
      range.rows = count;
    } else {
      range.unit = first / unit_columns;
    }
    if (range.blocks() > 0) {
      const cudaError_t code =
          prim::cuda::launch_kernel(&decode_weights, cuda::grid_of(range.blocks()), decode_threads,
                                    0, stream_, false, weights_, decoded, range);
      if (code != cudaSuccess) return cuda::launched(code);
    }
    grouped_matmul_kernel_args product;
    product.lhs = rows_of(Backward ? args_.d_out : args_.x);
    product.rhs = rows_of(decoded);
    product.out = columns_of(Backward ? args_.d_x : args_.out, first);
    product.m = args_.batch;
    product.n = count;
    product.k = by_row ? weights_.columns() : weights_.rows;
    product.transpose_rhs = by_row;
    return run(product);
  }

  /// d_w [rows, columns] of some rows at a time, and the sums of its groups.
  status differentiate_scales() {
    const strided_matrix& by_row = args_.transposed ? args_.x : args_.d_out;
    const strided_matrix& by_column = args_.transposed ? args_.d_out : args_.x;
    const std::int64_t columns = weights_.columns();
    const std::int64_t rows_together = lines_together(weights_.rows, columns * 4);
    for (std::int64_t first = 0; first < weights_.rows && columns > 0; first += rows_together) {
      const std::int64_t rows = std::min(rows_together, weights_.rows - first);
      grouped_matmul_kernel_args product;
      product.lhs = columns_of(by_row, first);
      product.d_out = rows_of(by_column);
      product.d_rhs = rows_of({.data = d_w_, .type = dtype::f32, .row = columns});
      product.m = args_.batch;
      product.n = columns;
      product.k = rows;
      if (status done = run(product); !done) return done;
      constexpr std::int64_t warps = decode_threads / 32;
      const cudaError_t code = prim::cuda::launch_kernel(
          &sum_groups, cuda::grid_of((rows * weights_.groups + warps - 1) / warps), decode_threads,
          0, stream_, false, args_, static_cast<const float*>(d_w_), first, rows);
      if (code != cudaSuccess) return cuda::launched(code);
    }
    return {};
  }

  status run(const grouped_matmul_kernel_args& product) {
    return grouped_matmul::sm80::launch<factor_row<Type>>(product, {.stream = stream_});
  }

  const quantized_kernel_args& args_;
  const packed_weights& weights_;
  std::int64_t together_ =
      sums_columns()
          ? lines_together(weights_.rows, weights_.columns() * std::int64_t{sizeof(multiplied)})
          : lines_together(weights_.columns(), weights_.rows* std::int64_t{sizeof(multiplied)});
  multiplied* decoded_ = nullptr;
  float* d_w_ = nullptr;
  std::size_t bytes_ = 0;
  cudaStream_t stream_ = nullptr;
};

}  // namespace tessera::kernels::quantized::sm80
