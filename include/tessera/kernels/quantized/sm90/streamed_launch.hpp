// Launches of streamed_product.hpp: which calls it serves, and how the work is cut.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
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
#ifdef TESSERA_SPIKE
  static constexpr std::array heights{16, 64, 128};
#else
  static constexpr std::array heights{16, 64, 128};  ///< rows of x of a tile
#endif

  struct variant {
    void (*run)(streamed_args) = nullptr;
    void (*order)(ordered_rows) = nullptr;
    int threads = 0;
    int shared_bytes = 0;
    int columns = 0;  ///< of a stage
  };
  template <thin_code Code, bool Nv, bool Short, int Rows>
  static variant variant_for() {
    using shape = streamed_shape<Code, Rows>;
    return {&multiply_streamed<element, Code, Nv, Short, Rows>, &order_rows<Code>,
            shape::threads,
            static_cast<int>(sizeof(typename shape::shared_memory)), shape::columns};
  }
  template <thin_code Code, bool Nv = false, bool Short = false>
  static std::array<variant, heights.size()> by_height() {
    return {variant_for<Code, Nv, Short, heights[0]>(), variant_for<Code, Nv, Short, heights[1]>(),
            variant_for<Code, Nv, Short, heights[2]>()};
  }
  static auto variants() {
    using enum thin_code;
#ifdef TESSERA_SPIKE
    return std::array<std::array<variant, heights.size()>, 1>{by_height<whole4>()};
#else
    const std::array all{by_height<whole4>(), by_height<whole8>(), by_height<nf4>(),
                         by_height<e2m1, true, true>()};
    if constexpr (is_f16) {
      return all;
    } else {
      const std::array others{by_height<e2m1>(), by_height<e4m3, true>(), by_height<e4m3>()};
      std::array<std::array<variant, heights.size()>, all.size() + others.size()> both;
      std::copy(others.begin(), others.end(), std::copy(all.begin(), all.end(), both.begin()));
      return both;
    }
#endif
  }
  /// The number of the kernel that takes weights.
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
  static constexpr int most_blocks_of_tile = prim::cuda::arrivals::most_splits - 2;
  static constexpr int outputs = streamed_shape<thin_code::whole4, 64>::outputs;

 public:
  static constexpr std::int64_t most_rows = 65536;

  static auto entries() {
    const auto all = variants();
    constexpr std::size_t kernels = heights.size() + 1;
    std::array<prim::cuda::kernel_entry, all.size() * kernels> listed;
    for (std::size_t i = 0; i < listed.size(); ++i) {
      const auto& of = all[i / kernels];
      const std::size_t height = i % kernels;
      listed[i] = height < heights.size() ? cuda::entry_of(of[height].run, of[height].shared_bytes)
                                          : cuda::entry_of(of[0].order);
    }
    return listed;
  }

  streamed_launch(const quantized_kernel_args& call, std::byte* workspace, int multiprocessors)
      : workspace_(workspace), multiprocessors_(multiprocessors) {
    if (call.batch > most_rows) return;
    height_ = call.batch <= heights[0] ? 0 : call.batch <= heights[1] ? 1 : 2;
    const int height = heights[height_];
    const std::int64_t columns_of_stage = call.weights.bits == 8 ? 128 : 256;
    const std::int64_t stages = (call.weights.columns() + columns_of_stage - 1) / columns_of_stage;
    const std::int64_t batch_tiles = (call.batch + height - 1) / height;
    cuda::workspace_parts parts(workspace);
    element* ordered = nullptr;
    parts.take(ordered, batch_tiles * height * stages * columns_of_stage);
    args_.x = reinterpret_cast<const std::byte*>(ordered);
    rows_ = {.x = call.x,
             .to = ordered,
             .batch = call.batch,
             .columns_of_x = call.weights.columns(),
             .height = height,
             .tiles = static_cast<int>(batch_tiles),
             .stages = static_cast<int>(stages)};
    rows_.aligned =
        reinterpret_cast<std::uintptr_t>(call.x.data) % 16 == 0 && call.x.row * 2 % 16 == 0;
    parts.take(args_.partial, std::int64_t{multiprocessors} * 2 * outputs * heights[height_]);
    bytes_ = parts.bytes();
    served_ = serves(call);
    if (served_) fill(call);
  }
  std::size_t bytes() const {
    return bytes_;
  }
  /// Whether operands lie as the copy unit takes them.
  bool served() const {
    return served_;
  }

  /// `dependent`: kernels may start before the kernel before them has ended.
  status launch(cudaStream_t stream, bool dependent) {
    std::int64_t blocks =
        std::min<std::int64_t>(multiprocessors_, std::int64_t{args_.tiles} * args_.stages_of_tile);
    blocks = std::min<std::int64_t>(blocks, std::int64_t{args_.tiles} * most_blocks_of_tile);
    args_.waves = static_cast<int>(args_.tiles / blocks);
    const auto rest = static_cast<int>(args_.tiles % blocks);
    // Blocks without a tile in a last wave cost less than sums of several blocks, if they are few.
    const bool shares = (blocks - rest) * 25 > blocks * (args_.waves + 1);
    if (rest != 0 && shares && rest <= prim::cuda::counted_tiles &&
        blocks <= rest * most_blocks_of_tile && workspace_ != nullptr) {
      args_.arrivals = streamed_arrivals::table.place_of(workspace_, 1);
    }
    if (args_.arrivals >= 0) {
      const std::int64_t units = std::int64_t{rest} * args_.stages_of_tile;
      args_.share = static_cast<int>(units / blocks);
      args_.longer = static_cast<int>(units % blocks);
    } else if (rest != 0) {
      ++args_.waves;
    }
    const int units = rows_.stages * (chosen_.columns / 8);
    dim3 grid = cuda::grid_of((units + order_threads - 1) / order_threads);
    grid.y = static_cast<unsigned>(std::min(rows_.tiles * rows_.height, 1024));
    const cudaError_t code = prim::cuda::launch_kernel(chosen_.order, grid, order_threads, 0, stream,
                                                       dependent, rows_);
    if (code != cudaSuccess) return cuda::launched(code);
    return cuda::launched(prim::cuda::launch_kernel(chosen_.run, cuda::grid_of(blocks),
                                                    chosen_.threads, chosen_.shared_bytes, stream,
                                                    dependent, args_));
  }

 private:
  bool serves(const quantized_kernel_args& call) {
    const packed_weights& weights = call.weights;
    constexpr std::int64_t most = INT32_MAX / 4;  // positions are numbers of 32 bits
    if (call.transposed || call.batch <= 0 || weights.rows <= 0 || weights.columns() <= 0 ||
        (weights.bits != 4 && weights.bits != 8) || call.x.type != Type ||
        weights.columns() % 16 != 0 || weights.columns() > most || weights.rows > most) {
      return false;
    }
    const bool bytes = !has_float_scales(weights.mode);
    if (weights.group_size < (bytes || weights.bits == 8 ? 16 : 32)) return false;
    if (!bytes && weights.scales.type != Type) return false;
    if (weights.mode == weight_mode::affine && weights.zeros.type != Type) return false;
    const std::size_t number = number_of(weights);
    const auto all = variants();
    if (number >= all.size()) return false;
    chosen_ = all[number][height_];
    const std::int64_t stages = (weights.columns() + chosen_.columns - 1) / chosen_.columns;
    const std::int64_t tiles = (weights.rows + outputs - 1) / outputs *
                               ((call.batch + heights[height_] - 1) / heights[height_]);
    return tiles < most && stages * prim::cuda::counted_tiles < most && make_maps(call);
  }

  bool make_maps(const quantized_kernel_args& call) {
    const packed_weights& weights = call.weights;
    return set_numbers(weights.scales, weights, args_.scales) &&
           (weights.mode != weight_mode::affine ||
            set_numbers(weights.zeros, weights, args_.zeros)) &&
           prim::cuda::make_tensor_map(args_.codes,
                                       {weights.codes.data,
                                        {weights.columns() * weights.bits / 16, weights.rows, 1, 1},
                                        {1, weights.codes.row * 2, 0, 0},
                                        {prim::cuda::panel_columns, outputs, 1, 1}});
  }

  /// Numbers come by pieces of 4, 8 or 16 bytes; false if all are too long.
  static bool set_numbers(const strided_matrix& of, const packed_weights& weights,
                          number_lines& to) {
    const std::int64_t number = has_float_scales(weights.mode) ? 2 : 1;
    to.data = static_cast<const std::byte*>(of.data);
    to.row = of.row * number;
    to.end = static_cast<int>(weights.groups * number);
    for (to.piece = 16; to.piece >= 4; to.piece /= 2) {
      const auto piece = static_cast<std::uintptr_t>(to.piece);
      if ((reinterpret_cast<std::uintptr_t>(to.data) % piece | to.row % to.piece |
           to.end % to.piece) == 0) {
        return true;
      }
    }
    return false;
  }

  void fill(const quantized_kernel_args& call) {
    const packed_weights& weights = call.weights;
    args_.out = call.out;
    args_.tensor_scale = static_cast<const float*>(weights.tensor_scale);
    args_.outputs = weights.rows;
    args_.batch = static_cast<int>(call.batch);
    const int height = heights[height_];
    args_.batch_tiles = (args_.batch + height - 1) / height;
    args_.output_tiles = static_cast<int>((weights.rows + outputs - 1) / outputs);
    args_.tiles = args_.batch_tiles * args_.output_tiles;
    args_.stages_of_tile =
        static_cast<int>((weights.columns() + chosen_.columns - 1) / chosen_.columns);
    args_.group_shift = std::countr_zero(static_cast<std::uint64_t>(weights.group_size));
    const int number = has_float_scales(weights.mode) ? 2 : 1;
    const std::int64_t columns_of_slot = number_line_bytes / number * weights.group_size;
    args_.slot_shift =
        std::countr_zero(static_cast<std::uint64_t>(columns_of_slot / chosen_.columns));
    args_.form = {weights.encoding, weights.form};
  }

  streamed_args args_{};
  ordered_rows rows_{};
  variant chosen_{};
  std::size_t height_ = 0;
  std::byte* workspace_;
  int multiprocessors_;
  std::size_t bytes_ = 0;
  bool served_ = false;
};

}  // namespace tessera::kernels::quantized::sm90
