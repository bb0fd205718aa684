// Products with packed weights and their gradients on a GPU: a few rows of x as thin_product.hpp
// says; else weights are decoded, a part of the result's columns at a time, and multiplied as
// grouped_matmul/sm80 multiplies. Weights are rounded once, to what is multiplied.
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
#include <tessera/kernels/cuda_entry_points.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/grouped_matmul/sm80/launch.hpp>
#include <tessera/kernels/quantized/sm80/decode.hpp>
#include <tessera/kernels/quantized/sm80/decode_pairs.hpp>
#include <tessera/kernels/quantized/sm80/groups.hpp>
#include <tessera/kernels/quantized/sm80/thin_launch.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::quantized::sm80 {

/// Products of decoded weights.
template <dtype Type>
struct tile_factors {
  struct row {
    static constexpr grouped_matmul_config config{.target = backend::cuda_sm80, .type = Type};
  };
  using launcher = grouped_matmul::sm80::launcher<row>;
  static auto entries() { return grouped_matmul::sm80::row_kernels<row>::entries(); }
  static std::size_t bytes(const grouped_matmul_kernel_args& product, int multiprocessors) {
    return cuda::workspace_bytes<launcher>(product, multiprocessors);
  }
  static status launch(const grouped_matmul_kernel_args& product, const launch_context& context) {
    return cuda::launch<launcher>(product, context);
  }
};

/// Bytes of decoded weights at a time, about: those of enough columns for a product that is long
/// beside its beginning and its end.
inline constexpr std::int64_t decoded_bytes = 128 << 20, decoded_bytes_of_groups = 256 << 20;

/// How many of `count` lines of `bytes` are there at a time: whole tiles of a product.
constexpr std::int64_t lines_together(std::int64_t count, std::int64_t bytes,
                                      std::int64_t most_bytes = decoded_bytes) {
  constexpr std::int64_t tile = 128;
  const std::int64_t fitting = most_bytes / std::max<std::int64_t>(bytes, 1) / tile * tile;
  return std::min(count, std::max(fitting, tile));
}

/// A launch of either direction; `Factors` multiply what is decoded.
template <dtype Type, bool Backward, class Factors = tile_factors<Type>>
class product_row {
  using multiplied = element_t<Type>;

 public:
  product_row(const quantized_kernel_args& args, std::byte* workspace, int multiprocessors)
      : args_(args),
        weights_(args.weights),
        workspace_(workspace),
        multiprocessors_(multiprocessors) {
    cuda::workspace_parts parts(workspace);
    parts.take(decoded_, args.matrices * together_ * line_length());
    parts.take(of_factors_, static_cast<std::int64_t>(factors_bytes_));
    bytes_ = parts.bytes();
    if constexpr (has_thin) {
      if (thin_launch<multiplied>::has_few_rows(args)) {
        cuda::workspace_parts few(workspace);
        const typename thin_launch<multiplied>::memory memory(few, args, multiprocessors);
        bytes_ = std::max(bytes_, few.bytes());
      }
    }
    if (!wants_scales()) return;
    cuda::workspace_parts others(workspace);  // one after the other
    others.take(d_w_, lines_together(weights_.rows, weights_.columns() * 4) * weights_.columns());
    bytes_ = std::max(bytes_, others.bytes());
  }

  static auto entries() {
    const auto factors = Factors::entries();
    const std::array own{cuda::entry_of(&decode_weights), cuda::entry_of(&sum_groups)};
    if constexpr (Type == dtype::f32) {
      return cuda::joined(factors, own);
    } else {
      const std::array words{cuda::entry_of(&decode_words<multiplied, 4>),
                             cuda::entry_of(&decode_words<multiplied, 8>)};
      const auto all = cuda::joined(factors, own, words);
      if constexpr (has_thin) {
        return cuda::joined(all, thin_launch<multiplied>::entries());
      } else {
        return all;
      }
    }
  }
  std::size_t bytes() const { return bytes_; }
  /// Whether rows are few, and weights meet them without being decoded before.
  bool takes_few() const { return few_rows().served(); }

  /// `dependent`: a kernel may start before the one before it has ended.
  status launch(cudaStream_t stream, bool dependent) {
    stream_ = stream;
    if constexpr (has_thin) {
      thin_launch<multiplied> few = few_rows();
      if (few.served()) return few.launch(stream, workspace_, dependent);
    }
    const std::int64_t results = sums_columns() ? weights_.rows : weights_.columns();
    for (std::int64_t first = 0; first < results; first += together_) {
      if (status done = multiply(first, std::min(together_, results - first)); !done) return done;
    }
    return wants_scales() ? differentiate_scales() : status();
  }

 private:
  static constexpr bool has_thin = !Backward && Type != dtype::f32;

  thin_launch<multiplied> few_rows() const {
    cuda::workspace_parts parts(workspace_);
    const typename thin_launch<multiplied>::memory memory(parts, args_, multiprocessors_);
    return {args_, memory, multiprocessors_};
  }

  /// Whether columns of the weights are what is summed over: outputs have the groups, backward
  /// inputs.
  bool sums_columns() const { return args_.transposed == Backward; }
  bool wants_scales() const {
    return Backward && (args_.d_scales.data != nullptr || args_.d_zeros.data != nullptr);
  }

  /// Weights that one of the result's columns is made of.
  std::int64_t line_length() const { return sums_columns() ? weights_.columns() : weights_.rows; }

  static grouped_matrix rows_of(const strided_matrix& of) {
    grouped_matrix matrix;
    matrix.data = of.data;
    matrix.type = of.type;
    matrix.row = of.row;
    matrix.group = of.matrix;
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
    const bool grouped = args_.group_sizes != nullptr;
    strided_matrix decoded{.data = decoded_, .type = Type, .row = columns, .column = 1};
    if (grouped) decoded.matrix = count * line_length();
    decode_range range{.rows = weights_.rows,
                       .units = columns / unit_columns,
                       .matrices = args_.matrices,
                       .sizes = grouped ? args_.group_sizes + args_.group_offset : nullptr};
    if (by_row) {
      range.row = first;
      range.rows = count;
    } else {
      range.unit = first / unit_columns;
    }
    if (range.blocks() > 0 && range.matrices > 0) {
      const cudaError_t code = decode(decoded, range);
      if (code != cudaSuccess) return cuda::launched(code);
    }
    grouped_matmul_kernel_args product = groups_of(args_);
    product.lhs = rows_of(Backward ? args_.d_out : args_.x);
    product.rhs = rows_of(decoded);
    product.out = columns_of(Backward ? args_.d_x : args_.out, first);
    product.n = count;
    product.k = line_length();
    product.transpose_rhs = by_row;
    return run(product);
  }

  /// Weights of a range, several words a thread where codes lie so.
  cudaError_t decode(const strided_matrix& to, const decode_range& range) const {
    if constexpr (Type != dtype::f32) {
      if ((weights_.bits == 4 || weights_.bits == 8) && to.row % unit_columns == 0) {
        const auto run =
            weights_.bits == 8 ? &decode_words<multiplied, 8> : &decode_words<multiplied, 4>;
        constexpr std::int64_t warps = decode_threads / prim::cuda::warp_size;
        const std::int64_t blocks = (decode_parts(range).all + warps - 1) / warps;
        return prim::cuda::launch_kernel(run, grid_of(blocks, range), decode_threads, 0, stream_,
                                         false, weights_, to, range);
      }
    }
    return prim::cuda::launch_kernel(&decode_weights, grid_of(range.blocks(), range),
                                     decode_threads, 0, stream_, false, weights_, to, range);
  }
  static dim3 grid_of(std::int64_t blocks, const decode_range& range) {
    dim3 grid = cuda::grid_of(blocks);
    grid.y = static_cast<unsigned>(range.matrices);
    return grid;
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
    return Factors::launch(product, {.threads = multiprocessors_,
                                     .workspace = of_factors_,
                                     .workspace_bytes = factors_bytes_,
                                     .stream = stream_});
  }

  const quantized_kernel_args& args_;
  const packed_weights& weights_;
  std::int64_t together_ =
      lines_together(sums_columns() ? weights_.rows : weights_.columns(),
                     args_.matrices* line_length() * std::int64_t{sizeof(multiplied)},
                     args_.group_sizes != nullptr ? decoded_bytes_of_groups : decoded_bytes);
  multiplied* decoded_ = nullptr;
  std::byte* of_factors_ = nullptr;
  float* d_w_ = nullptr;
  std::byte* workspace_;
  int multiprocessors_;
  std::size_t factors_bytes_ = Factors::bytes(groups_of(args_), multiprocessors_);
  std::size_t bytes_ = 0;
  cudaStream_t stream_ = nullptr;
};

}  // namespace tessera::kernels::quantized::sm80
