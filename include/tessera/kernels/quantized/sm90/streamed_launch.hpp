// Launches of streamed_product.hpp: which calls it serves, and how the work is cut.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/grouped_matmul/sm80/product.hpp>
#include <tessera/kernels/quantized/sm80/groups.hpp>
#include <tessera/kernels/quantized/sm90/streamed_product.hpp>
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
  using element = element_t<Type>;
  static constexpr bool is_f16 = Type == dtype::f16;

  struct variant {
    void (*run)(streamed_args) = nullptr;
    int rows = 0;   ///< of x of a tile
    int lines = 0;  ///< of a stage
    int threads = 0;
    int shared_bytes = 0;
  };
  /// Kernels for codes: few rows of x, more, and many; the last are for the codes that are most
  /// used.
  struct code_kernels {
    std::array<variant, 3> by_rows{};
    void (*order)(ordered_rows) = nullptr;
    int columns = 0;  ///< of a line
  };

  template <thin_code Code, bool Nv, bool Short, int Rows>
  static variant variant_for() {
    using shape = streamed_shape<Code, Rows>;
    static_assert(shape::outputs == outputs);
    return {&multiply_streamed<element, Code, Nv, Short, Rows>, Rows, shape::lines, shape::threads,
            static_cast<int>(sizeof(typename shape::shared_memory))};
  }
  template <thin_code Code, bool Nv = false, bool Short = false>
  static code_kernels kernels_for() {
    constexpr int most = Code == thin_code::whole4 || Code == thin_code::e2m1 ? 128 : 64;
    return {{variant_for<Code, Nv, Short, 16>(), variant_for<Code, Nv, Short, 64>(),
             variant_for<Code, Nv, Short, most>()},
            &order_rows<Code>,
            code_line<Code>::columns};
  }
  static auto all_kernels() {
    using enum thin_code;
    const std::array all{kernels_for<whole4>(), kernels_for<whole8>(), kernels_for<nf4>(),
                         kernels_for<e2m1, true, true>()};
    if constexpr (is_f16) {
      return all;
    } else {
      const std::array others{kernels_for<e2m1>(), kernels_for<e4m3, true>(), kernels_for<e4m3>()};
      std::array<code_kernels, all.size() + others.size()> both;
      std::copy(others.begin(), others.end(), std::copy(all.begin(), all.end(), both.begin()));
      return both;
    }
  }
  /// The number of the kernels that take weights.
  static std::size_t number_of(const packed_weights& weights) {
    switch (sm80::thin_code_of(weights.mode, weights.bits)) {
      case thin_code::whole4:
        return 0;
      case thin_code::whole8:
        return 1;
      case thin_code::nf4:
        return 2;
      case thin_code::e2m1:
        return is_nv(weights.mode) ? 3 : 4;
      case thin_code::e4m3:
        return is_nv(weights.mode) ? 5 : 6;
    }
    return 0;
  }

  static constexpr int outputs = 256;  ///< of a tile
  static constexpr int most_blocks_of_tile = prim::cuda::arrivals::most_splits - 2;

 public:
  static auto entries() {
    const auto all = all_kernels();
    std::array<prim::cuda::kernel_entry, all.size() * 4 + 1> listed;
    for (std::size_t i = 0; i + 1 < listed.size(); ++i) {
      const code_kernels& of = all[i / 4];
      listed[i] = i % 4 == 3
                      ? cuda::entry_of(of.order)
                      : cuda::entry_of(of.by_rows[i % 4].run, of.by_rows[i % 4].shared_bytes);
    }
    listed.back() = cuda::entry_of(&list_tiles);
    return listed;
  }

  streamed_launch(const quantized_kernel_args& call, std::byte* workspace, int multiprocessors)
      : workspace_(workspace), multiprocessors_(multiprocessors) {
    if (!takes(call)) return;
    const code_kernels kernels = all_kernels()[number_of(call.weights)];
    const std::int64_t rows = rows_of_matrix(call);
    chosen_ = kernels.by_rows[rows <= 16 ? 0 : rows <= 64 ? 1 : 2];
    order_ = kernels.order;
    columns_ = kernels.columns * chosen_.lines;
    fill(call);
    take_memory(call);
    served_ = find_operands(call);
  }
  /// Whatever addresses are.
  std::size_t bytes() const { return bytes_; }
  /// Whether operands lie as they are copied.
  bool served() const { return served_; }

  /// `dependent`: kernels may start before the kernel before them has ended.
  status launch(cudaStream_t stream, bool dependent) {
    const bool grouped = args_.table.rows != nullptr;
    if (grouped) {
      if (const cudaError_t code = list_rows(stream); code != cudaSuccess) {
        return cuda::launched(code);
      }
    }
    const int blocks = grouped ? all_waves() : cut();
    const int units = rows_.stages * (columns_ / 8);
    dim3 grid = cuda::grid_of((units + order_threads - 1) / order_threads);
    grid.y = static_cast<unsigned>(std::min(rows_.tiles * rows_.height, 1024));
    // The list is there before the product begins, which need only wait for x.
    const cudaError_t code = prim::cuda::launch_kernel(order_, grid, order_threads, 0, stream,
                                                       dependent && !grouped, rows_);
    if (code != cudaSuccess) return cuda::launched(code);
    return cuda::launched(prim::cuda::launch_kernel(chosen_.run, cuda::grid_of(blocks),
                                                    chosen_.threads, chosen_.shared_bytes, stream,
                                                    dependent, args_));
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
           number_of(weights) < all_kernels().size();
  }

  /// Rows of x for a matrix, on average.
  static std::int64_t rows_of_matrix(const quantized_kernel_args& call) {
    return (call.batch + call.matrices - 1) / call.matrices;
  }

  void take_memory(const quantized_kernel_args& call) {
    cuda::workspace_parts parts(workspace_);
    element* ordered = nullptr;
    parts.take(ordered, std::int64_t{rows_.tiles} * rows_.height * rows_.stages * columns_);
    rows_.to = ordered;
    args_.x = reinterpret_cast<const std::byte*>(ordered);
    if (call.group_sizes == nullptr) {
      parts.take(args_.partial, std::int64_t{multiprocessors_} * 2 * outputs * chosen_.rows);
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
    args_.output_tiles = static_cast<int>((weights.rows + outputs - 1) / outputs);
    args_.tiles = args_.batch_tiles * args_.output_tiles;
    args_.stages_of_tile = static_cast<int>((weights.columns() + columns_ - 1) / columns_);
    args_.group_shift = std::countr_zero(static_cast<std::uint64_t>(weights.group_size));
    const int number = has_float_scales(weights.mode) ? 2 : 1;
    const std::int64_t columns_of_slot = number_line_bytes / number * weights.group_size;
    args_.slot_shift = std::countr_zero(static_cast<std::uint64_t>(columns_of_slot / columns_));
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
                {code_line_bytes / 2 * chosen_.lines, outputs, 1, 1},
                chosen_.lines == 1 ? prim::cuda::box_order::half_panel
                                   : prim::cuda::box_order::panel}) &&
           (call.group_sizes == nullptr || set_rows_of_x());
  }
  bool set_rows_of_x() {
    const std::int64_t columns = std::int64_t{rows_.stages} * columns_;
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

  /// Waves, and shares of what is left; the number of blocks.
  int cut() {
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
  variant chosen_{};
  void (*order_)(ordered_rows) = nullptr;
  int4* listed_ = nullptr;
  grouped_matmul_kernel_args groups_{};
  int columns_ = 0;  ///< of a stage
  std::byte* workspace_;
  int multiprocessors_;
  std::size_t bytes_ = 0;
  bool served_ = false;
};

}  // namespace tessera::kernels::quantized::sm90
