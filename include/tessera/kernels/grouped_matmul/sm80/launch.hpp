// Launches of grouped matrix products for GPUs (sm_80 and everything later).
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <cuda_runtime.h>

#include <tessera/families/grouped_matmul/config.hpp>
#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/families/grouped_matmul/rules.hpp>
#include <tessera/kernels/cuda_entry_points.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/grouped_matmul/sm80/float_product.hpp>
#include <tessera/kernels/grouped_matmul/sm80/matrix_product.hpp>
#include <tessera/kernels/grouped_matmul/sm80/product.hpp>
#include <tessera/kernels/grouped_matmul/sm80/split_sums.hpp>
#include <tessera/kernels/grouped_matmul/sm80/sums.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::grouped_matmul::sm80 {

/// All kernels of a row, with an epilogue of the header path.
template <class Kernel, class Epilogue = no_epilogue>
struct row_kernels {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  static constexpr grouped_matmul_config config = resolved(Kernel::config);
  static constexpr bool has_floats = config.type == dtype::f32;
  using element = element_t<config.type>;
  using shape = std::conditional_t<has_floats, float_shape<config.block_m, config.block_n>,
                                   matrix_shape<config.block_m, config.block_n>>;
  /// Split sums become what the epilogue makes of them when they are added up.
  using of_product = std::conditional_t<splits_sums(config), no_epilogue, Epilogue>;
  using product = void (*)(product_args, of_product);

  /// The one for operands that are stored so.
  static product of_operands(const factor& a, const factor& b) {
    if (!a.direct || !b.direct) return stored_as<false, false, false>();
    if (a.across) return stored_as<true, true, true>();
    return b.across ? stored_as<false, true, true>() : stored_as<false, false, true>();
  }
  template <bool AcrossA, bool AcrossB, bool Direct>
  static product stored_as() {
    if constexpr (has_floats) {
      return &multiply_floats<shape, AcrossA, AcrossB, Direct, of_product>;
    } else {
      return &multiply_matrices<element, shape, AcrossA, AcrossB, Direct, of_product>;
    }
  }

  /// Whether tiles of it are copied as they are stored, 16 bytes at a time or of f32 4.
  static bool copies(const grouped_matrix& matrix, std::int64_t columns) {
    if (matrix.type != config.type) return false;
    if constexpr (has_floats) return true;
    const auto bits = reinterpret_cast<std::uintptr_t>(matrix.data) |
                      static_cast<std::uintptr_t>(matrix.row * 2) |
                      static_cast<std::uintptr_t>(matrix.group * 2) |
                      static_cast<std::uintptr_t>(columns * 2);
    return bits % 16 == 0;
  }

  static auto entries() {
    const auto of = [](bool a, bool b, bool direct) {
      return cuda::entry_of(
          of_operands({.across = a, .direct = direct}, {.across = b, .direct = direct}),
          shape::shared_bytes);
    };
    return std::array{of(false, false, true),
                      of(false, true, true),
                      of(true, true, true),
                      of(false, false, false),
                      cuda::entry_of(&place_groups),
                      cuda::entry_of(&add_scale_sums),
                      cuda::entry_of(&sum_rows),
                      cuda::entry_of(&copy_rows),
                      cuda::entry_of(&add_parts<Epilogue>)};
  }
};

/// Memory of a launch.
struct launch_memory {
  row_table table{};
  float* scale_sums = nullptr;
  std::int64_t parts = 1;  ///< of the summed axis
  float* part_sums = nullptr;
  std::size_t bytes = 0;
};

/// Pieces of k of the row's tiles; see `scale_piece`.
template <class Kernel>
std::int64_t scale_piece_of(const grouped_matmul_kernel_args& args) {
  using shape = typename row_kernels<Kernel>::shape;
  return scale_piece<shape::rows, shape::columns>(args.transpose_rhs);
}

template <class Kernel>
launch_memory memory_of(const grouped_matmul_kernel_args& args, std::byte* base) {
  cuda::workspace_parts parts(base);
  launch_memory memory;
  if (args.group_sizes != nullptr) {
    memory.table.segments = row_table::segments_of(args.groups);
    parts.take(memory.table.rows, memory.table.segments + 1);
    parts.take(memory.table.tiles, memory.table.segments + 1);
    parts.take(memory.table.taken, 1);
  }
  if (args.d_rhs_scale.data != nullptr) {
    const std::int64_t pieces = ceil_div(args.k, scale_piece_of<Kernel>(args));
    parts.take(memory.scale_sums, args.groups * (args.scale_blocks + pieces) * args.n);
  }
  memory.parts = split_parts(row_kernels<Kernel>::config, args.k, args.n);
  if (splits_sums(row_kernels<Kernel>::config)) {
    parts.take(memory.part_sums, memory.parts * args.m * args.n);
  }
  memory.bytes = parts.bytes();
  return memory;
}

/// Products with a block for each tile; of groups as many as there can be.
template <class Kernel, class Epilogue = no_epilogue>
struct tile_products {
  using epilogue_type = Epilogue;
  using kernels_of = row_kernels<Kernel, Epilogue>;
  using shape = typename kernels_of::shape;

  static constexpr int tile_rows = shape::rows;

  Epilogue epilogue{};

  static auto entries() { return kernels_of::entries(); }
  cudaError_t multiply(const product_args& args, cudaStream_t stream) const {
    const std::int64_t tiles = args.tiles(shape::rows, shape::columns);
    if (tiles == 0) return cudaSuccess;
    return prim::cuda::launch_kernel(kernels_of::of_operands(args.a, args.b), cuda::grid_of(tiles),
                                     shape::threads, shape::shared_bytes, stream, false, args,
                                     of_product());
  }

 private:
  typename kernels_of::of_product of_product() const {
    if constexpr (std::is_same_v<typename kernels_of::of_product, Epilogue>) {
      return epilogue;
    } else {
      return {};
    }
  }
};

/// The products of a call, as `Products` makes them, and the kernels around them.
template <class Kernel, class Products = tile_products<Kernel>>
class grouped_launch {
  using kernels_of = row_kernels<Kernel>;

 public:
  grouped_launch(const grouped_matmul_kernel_args& args, std::byte* workspace,
                 const Products& products = {})
      : args_(args), products_(products), memory_(memory_of<Kernel>(args, workspace)) {}

  static auto entries() { return Products::entries(); }
  std::size_t bytes() const { return memory_.bytes; }

  cudaError_t launch(cudaStream_t stream) {
    stream_ = stream;
    if (memory_.table.rows != nullptr) {
      enqueue(&place_groups, 1, prim::cuda::warp_size, 0, args_, memory_.table,
              int{products_.tile_rows});
    }
    if (args_.d_out.data == nullptr) {
      multiply_forward();
      return code_;
    }
    if (args_.d_lhs.data != nullptr) multiply(gradient_of_rows());
    if (args_.d_rhs.data != nullptr || memory_.scale_sums != nullptr) {
      multiply(gradient_of_weights());
    }
    run_sums();
    return code_;
  }

 private:
  static bool is_direct(const factor& operand, std::int64_t columns) {
    return operand.scale.data == nullptr && kernels_of::copies(operand.matrix, columns);
  }
  static factor rows_of(const grouped_matrix& matrix, std::int64_t columns, bool across) {
    factor operand{.matrix = matrix, .across = across};
    operand.direct = is_direct(operand, columns);
    return operand;
  }
  /// rhs as an operand whose summed axis is k (`sums_k`) or n.
  factor weights(bool sums_k) const {
    factor operand{.matrix = args_.rhs,
                   .scale = args_.rhs_scale,
                   .scale_block = std::max<std::int64_t>(
                       args_.k / std::max<std::int64_t>(args_.scale_blocks, 1), 1),
                   .scale_by_line = !args_.transpose_rhs,
                   .across = sums_k != args_.transpose_rhs};
    operand.direct = is_direct(operand, args_.transpose_rhs ? args_.k : args_.n);
    return operand;
  }

  product_args product() const {
    return {.table = memory_.table, .matrices = args_.groups, .rows = args_.m};
  }
  /// out = lhs W + rhs_bias + out_init, and what the options make of it.
  product_args forward() const {
    product_args args = product();
    args.a = rows_of(args_.lhs, args_.k, false);
    args.b = weights(true);
    args.to = args_.out;
    args.bias = args_.rhs_bias;
    args.init = args_.out_init;
    args.finish = completion::of(args_);
    args.scales_of_codes = args_.out_code_scale;
    args.columns = args_.n;
    args.depth = args_.k;
    return args;
  }
  /// d_lhs = d_out W^T.
  product_args gradient_of_rows() const {
    product_args args = product();
    args.a = rows_of(args_.d_out, args_.n, false);
    args.b = weights(false);
    args.to = args_.d_lhs;
    args.columns = args_.k;
    args.depth = args_.n;
    return args;
  }
  /// d_rhs = lhs^T d_out, laid out as rhs.
  product_args gradient_of_weights() const {
    product_args args = product();
    args.sums_rows = true;
    args.a = rows_of(args_.lhs, args_.k, true);
    args.b = rows_of(args_.d_out, args_.n, true);
    if (args_.transpose_rhs) std::swap(args.a, args.b);
    args.to = args_.d_rhs;
    args.rows = args_.transpose_rhs ? args_.n : args_.k;
    args.columns = args_.transpose_rhs ? args_.k : args_.n;
    args.depth = args_.m;
    args.weights = weights(true);
    args.scale_sums = memory_.scale_sums;
    args.scale_blocks = args_.scale_blocks;
    return args;
  }

  void multiply(const product_args& args) {
    if (code_ == cudaSuccess) code_ = products_.multiply(args, stream_);
  }

  void multiply_forward() {
    const product_args whole = forward();
    constexpr bool has_epilogue = is_epilogue<typename Products::epilogue_type>;
    if (memory_.part_sums == nullptr || (memory_.parts == 1 && !has_epilogue)) {
      return multiply(whole);
    }
    multiply(part_products(whole, memory_.parts, memory_.part_sums));
    enqueue(&add_parts<typename Products::epilogue_type>,
            ceil_div(whole.rows * ceil_div(whole.columns, result_columns), part_threads),
            part_threads, 0, whole, memory_.part_sums, memory_.parts, products_.epilogue);
  }

  void run_sums() {
    if (memory_.scale_sums != nullptr) {
      const std::int64_t sums = args_.groups * args_.scale_blocks * args_.n;
      enqueue(&add_scale_sums, ceil_div(sums, sum_threads), sum_threads, 0, args_,
              memory_.scale_sums, scale_piece_of<Kernel>(args_));
    }
    if (args_.d_rhs_bias.data != nullptr) {
      enqueue(&sum_rows, args_.groups * ceil_div(args_.n, sum_columns), sum_threads, 0, args_,
              memory_.table);
    }
    if (args_.d_out_init.data != nullptr) {
      const std::int64_t lines = args_.m * (args_.group_sizes == nullptr ? args_.groups : 1);
      enqueue(&copy_rows, lines * ceil_div(args_.n, sum_threads), sum_threads, 0, args_);
    }
  }

  template <class... Parameters, class... Arguments>
  void enqueue(void (*kernel)(Parameters...), std::int64_t blocks, int threads, int shared_bytes,
               const Arguments&... arguments) {
    if (code_ != cudaSuccess || blocks == 0) return;
    code_ = prim::cuda::launch_kernel(kernel, cuda::grid_of(blocks), threads, shared_bytes, stream_,
                                      false, arguments...);
  }

  const grouped_matmul_kernel_args& args_;
  Products products_;
  launch_memory memory_;
  cudaStream_t stream_ = nullptr;
  cudaError_t code_ = cudaSuccess;
};

/// The launch of a row with an epilogue.
template <class Kernel>
struct launcher {
  using args_type = grouped_matmul_kernel_args;

  template <class Epilogue = no_epilogue>
  static grouped_launch<Kernel, tile_products<Kernel, Epilogue>> of(const args_type& args,
                                                                    int /*multiprocessors*/,
                                                                    std::byte* workspace,
                                                                    const Epilogue& epilogue = {}) {
    return {args, workspace, {epilogue}};
  }
};

}  // namespace tessera::kernels::grouped_matmul::sm80
