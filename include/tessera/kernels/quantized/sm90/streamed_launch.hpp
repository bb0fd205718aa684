// Launches of streamed_product.hpp: which calls it serves, and how the work is cut.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/quantized/config.hpp>
#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/grouped_matmul/sm80/product.hpp>
#include <tessera/kernels/quantized/sm80/groups.hpp>
#include <tessera/kernels/quantized/sm90/streamed_kernels.hpp>
#include <tessera/prim/cuda/arrival_table.hpp>
#include <tessera/prim/cuda/arrivals.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::quantized::sm90 {

/// Hidden, because shared objects that hold the same kernels have words of their own.
class __attribute__((visibility("hidden"))) streamed_arrivals {
 public:
  static inline constinit prim::cuda::arrival_table table{};
};

/// Products of elements of one type.
template <dtype Type>
class streamed_launch {
  using kernels = streamed_kernels<Type>;
  static constexpr int most_blocks_of_tile = prim::cuda::arrivals::most_splits - 2;

 public:
  static auto entries() { return kernels::entries(); }

  streamed_launch(const quantized_kernel_args& call, std::byte* workspace, int multiprocessors)
      : workspace_(workspace), multiprocessors_(multiprocessors) {
    if (!takes(call)) return;
    chosen_ = kernels::chosen(call, rows_of_matrix(call));
    fill(call);
    take_memory(call);
    served_ = find_operands(call);
  }
  /// Whatever addresses are.
  std::size_t bytes() const { return bytes_; }
  /// Whether operands lie as they are copied.
  bool served() const { return served_; }
  /// Whether weights are not rounded.
  bool is_exact() const { return chosen_.is_exact(); }

  /// `dependent`: kernels may start before the kernel before them has ended.
  status launch(cudaStream_t stream, bool dependent) {
    const bool grouped = args_.table.rows != nullptr;
    if (grouped) {
      if (const cudaError_t code = list_rows(stream); code != cudaSuccess) {
        return cuda::launched(code);
      }
    }
    const int blocks = grouped ? all_waves() : cut();
    // The list is there before the product begins, which need only wait for x.
    const cudaError_t code = prim::cuda::launch_kernel(
        chosen_.order_of(rows_), chosen_.grid_of_order(rows_), chosen_.threads_of_order(), 0,
        stream, dependent && !grouped, rows_);
    if (code != cudaSuccess) return cuda::launched(code);
    return cuda::launched(
        args_.paired > 0
            ? prim::cuda::launch_clusters(chosen_.run, cuda::grid_of(blocks), 2, chosen_.threads,
                                          chosen_.shared_bytes, stream, dependent, args_)
            : prim::cuda::launch_kernel(chosen_.run, cuda::grid_of(blocks), chosen_.threads,
                                        chosen_.shared_bytes, stream, dependent, args_));
  }

 private:
  /// Whether kernels take what is asked, wherever operands lie.
  static bool takes(const quantized_kernel_args& call) {
    const packed_weights& weights = call.weights;
    const bool floats = has_float_scales(weights.mode);
    const register_shape shape{.mode = weights.mode,
                               .bits = weights.bits,
                               .group_size = weights.group_size,
                               .batch = call.batch,
                               .rows = weights.rows,
                               .columns = weights.columns(),
                               .matrices = call.matrices};
    if (call.transposed || call.batch <= 0 || call.matrices <= 0 || weights.rows <= 0 ||
        weights.columns() <= 0 || call.x.type != Type) {
      return false;
    }
    return shape.is_taken() && (!floats || weights.scales.type == Type) &&
           (weights.mode != weight_mode::affine || weights.zeros.type == Type) &&
           kernels::has(weights);
  }

  /// Rows of x for a matrix, on average.
  static std::int64_t rows_of_matrix(const quantized_kernel_args& call) {
    return (call.batch + call.matrices - 1) / call.matrices;
  }

  void take_memory(const quantized_kernel_args& call) {
    cuda::workspace_parts parts(workspace_);
    std::byte* ordered = nullptr;
    const bool grouped = call.group_sizes != nullptr;
    const std::int64_t of_stage = grouped ? std::int64_t{chosen_.columns} * 2 : chosen_.box_bytes;
    parts.take(ordered, rows_.stages * rows_.tiles * of_stage);
    rows_.to = ordered;
    args_.x = ordered;
    if (call.group_sizes == nullptr) {
      parts.take(args_.partial,
                 std::int64_t{multiprocessors_} * 2 * chosen_.outputs * chosen_.rows);
    } else {
      args_.table.segments = grouped_matmul::sm80::row_table::segments_of(call.matrices);
      parts.take(args_.table.rows, args_.table.segments + 1);
      parts.take(args_.table.tiles, args_.table.segments + 1);
      parts.take(listed_, most_tiles());
      args_.listed = listed_;
      groups_ = sm80::groups_of(call);
    }
    bytes_ = parts.bytes();
  }

  void fill(const quantized_kernel_args& call) {
    const packed_weights& weights = call.weights;
    args_.out = call.out;
    args_.tensor_scale = static_cast<const float*>(weights.tensor_scale);
    args_.outputs = weights.rows;
    args_.batch = static_cast<int>(call.batch);
    args_.batch_tiles = (args_.batch + chosen_.rows - 1) / chosen_.rows;
    args_.output_tiles = static_cast<int>((weights.rows + chosen_.outputs - 1) / chosen_.outputs);
    args_.tiles = args_.batch_tiles * args_.output_tiles;
    args_.stages_of_tile =
        static_cast<int>((weights.columns() + chosen_.columns - 1) / chosen_.columns);
    args_.group_shift = std::countr_zero(static_cast<std::uint64_t>(weights.group_size));
    const int number = has_float_scales(weights.mode) ? 2 : 1;
    const std::int64_t columns_of_slot = number_line_bytes / number * weights.group_size;
    args_.slot_shift =
        std::countr_zero(static_cast<std::uint64_t>(columns_of_slot / chosen_.columns));
    args_.form = {weights.encoding, weights.form};
    rows_.x = call.x;
    rows_.batch = call.batch;
    rows_.columns_of_x = weights.columns();
    // Of groups rows lie one behind the other: a tile may begin at each.
    const bool grouped = call.group_sizes != nullptr;
    rows_.height = grouped ? 1 : chosen_.rows;
    rows_.tiles = grouped ? args_.batch : args_.batch_tiles;
    rows_.stages = args_.stages_of_tile;
    rows_.lines = chosen_.lines;
    rows_.aligned =
        reinterpret_cast<std::uintptr_t>(call.x.data) % 16 == 0 && call.x.row * 2 % 16 == 0;
  }

  bool find_operands(const quantized_kernel_args& call) {
    const packed_weights& weights = call.weights;
    return set_numbers(weights.scales, weights, args_.scales) &&
           (weights.mode != weight_mode::affine ||
            set_numbers(weights.zeros, weights, args_.zeros)) &&
           prim::cuda::make_tensor_map(
               args_.codes,
               {weights.codes.data,
                {weights.columns() * weights.bits / 16, weights.rows, call.matrices, 1},
                {1, weights.codes.row * 2, weights.codes.matrix * 2, 0},
                {code_line_bytes / 2 * chosen_.lines, chosen_.outputs, 1, 1},
                chosen_.lines == 1 ? prim::cuda::box_order::half_panel
                                   : prim::cuda::box_order::panel}) &&
           (call.group_sizes == nullptr || set_rows_of_x());
  }
  bool set_rows_of_x() {
    const std::int64_t columns = std::int64_t{rows_.stages} * chosen_.columns;
    return prim::cuda::make_tensor_map(args_.rows_of_x,
                                       {rows_.to,
                                        {columns, rows_.batch, 1, 1},
                                        {1, columns, 0, 0},
                                        {prim::cuda::panel_columns, chosen_.rows, 1, 1}});
  }
  /// Numbers come by pieces of 2, 4, 8 or 16 bytes; false if all are too long.
  static bool set_numbers(const strided_matrix& of, const packed_weights& weights,
                          number_lines& to) {
    const std::int64_t number = has_float_scales(weights.mode) ? 2 : 1;
    to.data = static_cast<const std::byte*>(of.data);
    to.row = of.row * number;
    to.matrix = of.matrix * number;
    to.end = static_cast<int>(weights.groups * number);
    for (to.piece = 16; to.piece >= 2; to.piece /= 2) {
      if (reinterpret_cast<std::uintptr_t>(to.data) % static_cast<unsigned>(to.piece) == 0 &&
          to.row % to.piece == 0 && to.matrix % to.piece == 0 && to.end % to.piece == 0) {
        return true;
      }
    }
    return false;
  }

  /// Tiles of the rows of all groups, at most.
  std::int64_t most_tiles() const { return args_.batch_tiles + args_.table.segments; }

  /// Which rows the tiles of groups have.
  cudaError_t list_rows(cudaStream_t stream) {
    const cudaError_t code =
        prim::cuda::launch_kernel(&grouped_matmul::sm80::place_groups, 1, prim::cuda::warp_size, 0,
                                  stream, false, groups_, args_.table, int{chosen_.rows});
    if (code != cudaSuccess) return code;
    grouped_matmul::sm80::product_args rows;
    rows.table = args_.table;
    rows.rows = args_.batch;
    rows.columns = 1;
    constexpr std::int64_t warps = list_threads / prim::cuda::warp_size;
    return prim::cuda::launch_kernel(&list_tiles, cuda::grid_of((most_tiles() + warps - 1) / warps),
                                     list_threads, 0, stream, false, rows, int{chosen_.rows},
                                     listed_);
  }

  /// Tiles of groups are taken whole, as many as the device counts; the number of blocks.
  int all_waves() {
    args_.waves = INT32_MAX;
    return static_cast<int>(
        std::min<std::int64_t>(multiprocessors_, most_tiles() * args_.output_tiles));
  }

  /// Two blocks of a cluster have each tile behind the waves together, where these are most of the
  /// blocks; the number of blocks, 0 where it is not so.
  int pair() {
    const int blocks = multiprocessors_ / 2 * 2, rest = args_.tiles % std::max(blocks, 1);
    const bool most = rest > 0 && 2 * rest <= blocks && 2 * rest * 5 >= blocks * 4;
    if (!most || args_.stages_of_tile < 2) return 0;
    args_.paired = rest;
    args_.waves = args_.tiles / blocks;
    return args_.waves > 0 ? blocks : 2 * rest;
  }

  /// Waves, and shares of what is left; the number of blocks.
  int cut() {
    if (const int of_pairs = pair(); of_pairs > 0) return of_pairs;
    std::int64_t blocks =
        std::min<std::int64_t>(multiprocessors_, std::int64_t{args_.tiles} * args_.stages_of_tile);
    blocks = std::min(blocks, std::int64_t{args_.tiles} * most_blocks_of_tile);
    args_.waves = static_cast<int>(args_.tiles / blocks);
    const std::int64_t rest = args_.tiles % blocks;
    // Blocks without a tile in a last wave cost less than sums of several blocks, if they are few.
    const bool shares = (blocks - rest) * 25 > blocks * (args_.waves + 1);
    if (rest != 0 && shares && rest <= prim::cuda::counted_tiles &&
        blocks <= rest * most_blocks_of_tile) {
      args_.arrivals = streamed_arrivals::table.place_of(workspace_, 1);
    }
    if (args_.arrivals >= 0) {
      const std::int64_t units = rest * args_.stages_of_tile;
      args_.share = static_cast<int>(units / blocks);
      args_.longer = static_cast<int>(units % blocks);
    } else if (rest != 0) {
      ++args_.waves;
    }
    return static_cast<int>(blocks);
  }

  streamed_args args_{};
  ordered_rows rows_{};
  streamed_kernel chosen_{};
  int4* listed_ = nullptr;
  grouped_matmul_kernel_args groups_{};
  std::byte* workspace_;
  int multiprocessors_;
  std::size_t bytes_ = 0;
  bool served_ = false;
};

}  // namespace tessera::kernels::quantized::sm90
