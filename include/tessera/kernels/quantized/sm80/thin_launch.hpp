// Launches of products of a few rows of x: which calls they serve, how groups' numbers are cut into
// copies, how many blocks share the stages.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include <cuda_runtime.h>

#include <tessera/families/quantized/config.hpp>
#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/grouped_matmul/sm80/product.hpp>
#include <tessera/kernels/quantized/sm80/groups.hpp>
#include <tessera/kernels/quantized/sm80/thin_product.hpp>
#include <tessera/prim/cuda/arrival_table.hpp>
#include <tessera/prim/cuda/arrivals.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::quantized::sm80 {

/// Hidden, because shared objects that hold the same kernels have words of their own.
class __attribute__((visibility("hidden"))) thin_arrivals {
 public:
  static inline constinit prim::cuda::arrival_table table{};
};

/// Products of elements of one type.
template <class Element>
class thin_launch {
  using kernel = void (*)(thin_args);
  struct variant {
    kernel run = nullptr;
    int most_bytes = 0;  ///< of shared memory
    int columns = 0;     ///< of a stage
    int outputs = 0;     ///< of a tile
    int threads = 0;
    int blocks = 0;  ///< of a multiprocessor
    int (*bytes)(int of_scales, int of_zeros) = nullptr;
  };
  static constexpr bool is_f16 = std::is_same_v<Element, f16>;

  template <thin_code Code, int Period, int Tiles>
  static variant variant_for() {
    using layout = thin_layout<Code, Tiles>;
    return {&multiply_thin<Element, Code, Period, Tiles>,
            layout::most_bytes,
            layout::columns,
            layout::outputs,
            layout::threads,
            layout::blocks,
            &layout::shared_bytes};
  }
  template <thin_code Code, int Period>
  static std::array<variant, 2> by_tiles() {
    return {variant_for<Code, Period, 1>(), variant_for<Code, Period, 2>()};
  }
  static auto variants() {
    using enum thin_code;
    const std::array all{by_tiles<whole4, 32>(), by_tiles<whole4, 64>(), by_tiles<whole8, 32>(),
                         by_tiles<nf4, 32>(), by_tiles<e2m1, 16>()};
    if constexpr (is_f16) {
      return all;
    } else {
      const std::array others{by_tiles<e2m1, 32>(), by_tiles<e4m3, 16>(), by_tiles<e4m3, 32>()};
      std::array<std::array<variant, 2>, all.size() + others.size()> both;
      std::copy(others.begin(), others.end(), std::copy(all.begin(), all.end(), both.begin()));
      return both;
    }
  }
  /// The number of the kernel that takes weights.
  static std::size_t number_of(const packed_weights& weights) {
    switch (thin_code_of(weights.mode, weights.bits)) {
      case thin_code::whole4:
        return weights.group_size >= 64 ? 1 : 0;
      case thin_code::whole8:
        return 2;
      case thin_code::nf4:
        return 3;
      case thin_code::e2m1:
        return is_nv(weights.mode) ? 4 : 5;
      case thin_code::e4m3:
        return is_nv(weights.mode) ? 6 : 7;
    }
    return 0;
  }
  static variant variant_of(const packed_weights& weights, bool two_tiles) {
    const auto all = variants();
    const std::size_t number = number_of(weights);
    return number < all.size() ? all[number][two_tiles ? 1 : 0] : variant{};
  }

 public:
  static auto entries() {
    const auto all = variants();
    std::array<prim::cuda::kernel_entry, 2 * std::tuple_size_v<decltype(variants())>> listed;
    for (std::size_t i = 0; i < listed.size(); ++i) {
      const variant& of = all[i / 2][i % 2];
      listed[i] = cuda::entry_of(of.run, of.most_bytes);
    }
    return listed;
  }

  /// Whether rows of x are few, or those of a group where they are spread evenly.
  static bool has_few_rows(const quantized_kernel_args& call) {
    return is_thin(call.batch, call.matrices, call.group_sizes != nullptr);
  }

  /// Memory of a launch.
  struct memory {
    float* partial = nullptr;  ///< sums that blocks may leave
    grouped_matmul::sm80::row_table table{};

    memory(cuda::workspace_parts& parts, const quantized_kernel_args& call, int multiprocessors) {
      const auto of_blocks = [multiprocessors]<class Layout>(Layout) {
        return std::int64_t{multiprocessors} * Layout::blocks * 2 * Layout::outputs * Layout::rows;
      };
      constexpr auto code = thin_code::whole4;
      parts.take(partial, wants_two_tiles(call) ? of_blocks(thin_layout<code, 2>())
                                                : of_blocks(thin_layout<code, 1>()));
      if (call.group_sizes == nullptr) return;
      table.segments = grouped_matmul::sm80::row_table::segments_of(call.matrices);
      parts.take(table.rows, table.segments + 1);
      parts.take(table.tiles, table.segments + 1);
    }
  };

  thin_launch(const quantized_kernel_args& call, const memory& of_launch, int multiprocessors)
      : chosen_(variant_of(call.weights, wants_two_tiles(call))),
        multiprocessors_(multiprocessors) {
    args_.call = call;
    args_.partial = of_launch.partial;
    args_.table = of_launch.table;
    const packed_weights& weights = call.weights;
    served_ =
        chosen_.run != nullptr && !call.transposed && call.batch > 0 && has_few_rows(call) &&
        weights.rows > 0 && weights.columns() % thin_chunk == 0 && weights.columns() > 0 &&
        (weights.bits == 4 || weights.bits == 8) &&
        (std::is_same_v<Element, f16> ? call.x.type == dtype::f16 : call.x.type == dtype::bf16) &&
        are_multiples(16, call.x.data, call.x.row * 2) &&
        are_multiples(16, weights.codes.data, (weights.codes.row | weights.codes.matrix) * 4) &&
        has_short_rows(weights.codes.row * 4) && has_short_rows(call.x.row * 2);
    if (!served_) return;
    args_.stages_of_tile =
        static_cast<int>((weights.columns() + chosen_.columns - 1) / chosen_.columns);
    args_.group_shift = std::countr_zero(static_cast<std::uint64_t>(weights.group_size));
    const bool bytes = !has_float_scales(weights.mode);
    args_.tiles = static_cast<int>(tile_count());
    served_ = tile_count() * args_.stages_of_tile < INT32_MAX && shares_of_rows() <= most_shares &&
              weights.group_size >= (bytes ? 16 : 32) &&
              cut(weights.scales, bytes ? 1 : static_cast<int>(size_of(weights.scales.type)),
                  args_.scales);
    if (weights.mode == weight_mode::affine) {
      served_ =
          served_ && cut(weights.zeros, static_cast<int>(size_of(weights.zeros.type)), args_.zeros);
    }
  }
  /// Whether there are few rows, and all operands lie as they are copied.
  bool served() const { return served_; }

  /// `dependent`: before the kernel before it has ended.
  status launch(cudaStream_t stream, const std::byte* workspace, bool dependent) {
    if (args_.table.rows != nullptr) {
      const cudaError_t code = prim::cuda::launch_kernel(
          &grouped_matmul::sm80::place_groups, 1, prim::cuda::warp_size, 0, stream, false,
          groups_of(args_.call), args_.table, rows_of_tile());
      if (code != cudaSuccess) return cuda::launched(code);
    }
    const std::int64_t tiles = tile_count(), shares = shares_of_rows();
    std::int64_t steps = tiles * args_.stages_of_tile;
    if (tiles * shares <= prim::cuda::counted_tiles && workspace != nullptr) {
      args_.arrivals = thin_arrivals::table.place_of(workspace, 1);
    }
    if (args_.arrivals < 0) {
      args_.step = args_.stages_of_tile;
      steps = tiles;
    }
    const std::int64_t together = std::int64_t{multiprocessors_} * chosen_.blocks;
    std::int64_t blocks = std::min(std::max<std::int64_t>(together / shares, 1), steps);
    blocks = std::min(blocks, tiles * (prim::cuda::arrivals::most_splits - 2));
    args_.share = static_cast<int>(steps / blocks);
    args_.longer = static_cast<int>(steps % blocks);
    dim3 grid = cuda::grid_of(blocks);
    grid.y = static_cast<unsigned>(shares);
    return cuda::launched(prim::cuda::launch_kernel(
        chosen_.run, grid, chosen_.threads, chosen_.bytes(args_.scales.bytes, args_.zeros.bytes),
        stream, dependent, args_));
  }

 private:
  static constexpr std::int64_t most_shares = 65535;  ///< blocks of the second axis of a grid

  static bool wants_two_tiles(const quantized_kernel_args& call) {
    return call.batch > 8 * std::max<std::int64_t>(call.matrices, 1);
  }
  int rows_of_tile() const { return wants_two_tiles(args_.call) ? 16 : 8; }
  /// Parts that rows are cut into, as many as there can be: each has a row.
  std::int64_t shares_of_rows() const {
    if (args_.table.rows == nullptr) return 1;
    const std::int64_t batch = args_.call.batch;
    return std::min(batch, batch / rows_of_tile() + args_.table.segments);
  }

  std::int64_t tile_count() const {
    return (args_.call.weights.rows + chosen_.outputs - 1) / chosen_.outputs;
  }
  /// Offsets in a tile have 32 bits.
  static bool has_short_rows(std::int64_t bytes) { return bytes >= 0 && bytes < INT32_MAX / 128; }
  static bool are_multiples(std::uintptr_t of, const void* data, std::int64_t row) {
    return (reinterpret_cast<std::uintptr_t>(data) | static_cast<std::uintptr_t>(row)) % of == 0;
  }

  /// How numbers of `size` bytes come; false if 4 bytes are too many at once.
  bool cut(const strided_matrix& numbers, int size, group_bytes& to) const {
    const packed_weights& weights = args_.call.weights;
    to.data = static_cast<const std::byte*>(numbers.data);
    to.row = numbers.row * size;
    to.matrix = numbers.matrix * size;
    to.end = weights.groups * size;
    to.number = size;
    if (!has_short_rows(to.row)) return false;
    const std::int64_t in_stage = std::max<std::int64_t>(chosen_.columns / weights.group_size, 1);
    to.bytes = std::max(static_cast<int>(in_stage) * size, 4);
    for (to.piece_shift = 4; to.piece_shift >= 2; --to.piece_shift) {
      const std::int64_t piece = std::int64_t{1} << to.piece_shift;
      if (to.bytes % piece == 0 &&
          are_multiples(static_cast<std::uintptr_t>(piece), to.data, to.row | to.end | to.matrix)) {
        return true;
      }
    }
    return false;
  }

  thin_args args_{};
  variant chosen_;
  int multiprocessors_;
  bool served_ = false;
};

}  // namespace tessera::kernels::quantized::sm80
