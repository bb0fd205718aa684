// The kernels that streamed_launch.hpp chooses from, by codes and rows of x.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/quantized/sm90/few_product.hpp>
#include <tessera/kernels/quantized/sm90/few_rows.hpp>
#include <tessera/kernels/quantized/sm90/streamed_product.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::quantized::sm90 {

/// How blocks share the ordering of x: units of eight columns and rows, or stages.
enum class order_share : std::uint8_t { units, stages };

/// A product, and the kernel that lays x in the order of its codes.
struct streamed_kernel {
  void (*run)(streamed_args) = nullptr;
  void (*order)(ordered_rows) = nullptr;
  int rows = 0;     ///< of x of a tile
  int outputs = 0;  ///< of a tile
  int lines = 0;    ///< of a stage
  int columns = 0;  ///< of a stage
  int threads = 0;
  int shared_bytes = 0;
  int box_bytes = 0;  ///< of x of a stage and a tile
  order_share shares = order_share::units;
  /// The same for several rows a thread, where one row a thread would be more blocks than a wave.
  void (*order_many)(ordered_rows) = nullptr;
  static constexpr int order_many_rows = 4;

  /// Weights are not rounded: sums of groups are scaled. Of one tile of rows, of one matrix.
  constexpr bool is_exact() const { return shares != order_share::units; }
  int threads_of_order() const {
    return shares == order_share::stages ? few_order_threads : order_threads;
  }
  dim3 grid_of_order(const ordered_rows& of) const {
    if (shares == order_share::stages) {
      return dim3(static_cast<unsigned>(of.stages), static_cast<unsigned>(rows + 7) / 8);
    }
    const int blocks = order_blocks(of), all = of.tiles * of.height;
    dim3 grid = cuda::grid_of(blocks);
    const int together = takes_many(of) ? order_many_rows : 1;
    grid.y = static_cast<unsigned>(std::min((all + together - 1) / together, 1024));
    return grid;
  }
  /// The kernel that lays so many rows in order.
  auto order_of(const ordered_rows& of) const { return takes_many(of) ? order_many : order; }

 private:
  static constexpr int order_wave = 1024;  ///< blocks that are there at once, about

  int order_blocks(const ordered_rows& of) const {
    return (of.stages * (columns / 8) + order_threads - 1) / order_threads;
  }
  bool takes_many(const ordered_rows& of) const {
    return order_many != nullptr &&
           std::int64_t{order_blocks(of)} * of.tiles * of.height > order_wave;
  }
};

/// Kernels of elements of one type.
template <dtype Type>
class streamed_kernels {
  using element = element_t<Type>;
  static constexpr bool is_f16 = Type == dtype::f16;
  using enum thin_code;

  template <class Shape>
  static constexpr streamed_kernel of_shape(void (*run)(streamed_args), void (*order)(ordered_rows),
                                            order_share shares) {
    return {run,
            order,
            Shape::rows,
            Shape::outputs,
            Shape::lines,
            Shape::columns,
            Shape::threads,
            static_cast<int>(sizeof(typename Shape::shared_memory)),
            Shape::x_bytes,
            shares};
  }
  template <thin_code Code, bool Nv, bool Short, int Rows>
  static constexpr streamed_kernel any() {
    constexpr bool wide = Rows > 128;
    streamed_kernel of =
        of_shape<streamed_shape<Code, Rows>>(&multiply_streamed<element, Code, Nv, Short, Rows>,
                                             &order_rows<Code, wide>, order_share::units);
    if constexpr (wide) of.order_many = &order_rows<Code, wide, streamed_kernel::order_many_rows>;
    return of;
  }
  template <thin_code Code, bool Nv, int Span, int Rows>
  static constexpr streamed_kernel few() {
    // Rows that lie side by side in no span are in the same order for all long ones.
    constexpr int spread = few_box<Rows, Span>::spans == 1 && Span > 64 ? 64 : Span;
    return of_shape<few_shape<Code, Rows, Span>>(&multiply_few<element, Code, Nv, Rows, Span>,
                                                 &spread_rows<element, Code, Rows, spread>,
                                                 order_share::stages);
  }
  /// 16, 64 and 128 rows, those for the codes that are most used.
  template <thin_code Code, bool Nv = false, bool Short = false>
  static constexpr std::array<streamed_kernel, 3> by_rows() {
    constexpr int most = Code == whole4 || Code == e2m1 ? 128 : 64;
    return {any<Code, Nv, Short, 16>(), any<Code, Nv, Short, 64>(), any<Code, Nv, Short, most>()};
  }

  static constexpr auto any_rows() {
    const std::array all{by_rows<whole4>(), by_rows<whole8>(), by_rows<nf4>(),
                         by_rows<e2m1, true, true>()};
    if constexpr (is_f16) {
      return all;
    } else {
      const std::array others{by_rows<e2m1>(), by_rows<e4m3, true>(), by_rows<e4m3>()};
      std::array<std::array<streamed_kernel, 3>, all.size() + others.size()> both;
      std::copy(others.begin(), others.end(), std::copy(all.begin(), all.end(), both.begin()));
      return both;
    }
  }
  /// Of one matrix: 2, 8 and 16 rows of whole numbers with groups of 64 or more, 256 with any,
  /// where there are more than 128; 2 of E2M1; 16 of whole numbers with groups of 128 or more.
  static constexpr auto dense_rows() {
    const std::array all{few<whole4, false, 64, 2>(),  few<whole4, false, 64, 8>(),
                         few<whole4, false, 64, 16>(), any<whole4, false, false, 256>(),
                         few<e2m1, true, 16, 2>(),     few<whole4, false, 128, 16>()};
    if constexpr (is_f16) {
      return all;
    } else {
      return std::array{all[0], all[1], all[2], all[3], all[4], all[5], few<e2m1, false, 32, 2>()};
    }
  }

  /// Where the kernels that take weights stand.
  static std::size_t number_of(const packed_weights& weights) {
    switch (sm80::thin_code_of(weights.mode, weights.bits)) {
      case whole4:
        return 0;
      case whole8:
        return 1;
      case nf4:
        return 2;
      case e2m1:
        return is_nv(weights.mode) ? 3 : 4;
      case e4m3:
        return is_nv(weights.mode) ? 5 : 6;
    }
    return 0;
  }
  /// Where the kernel of a call of one matrix stands, or behind the last.
  static std::size_t number_of_dense(const quantized_kernel_args& call) {
    constexpr std::size_t none = 99;
    const packed_weights& weights = call.weights;
    if (call.group_sizes != nullptr || weights.bits != 4) return none;
    if (weights.mode == weight_mode::affine) {
      if (call.batch > 128) return 3;
      if (call.batch > 16 || weights.group_size < 64) return none;
      return call.batch <= 2 ? 0 : call.batch <= 8 ? 1 : weights.group_size < 128 ? 2 : 5;
    }
    if (call.batch > 2) return none;
    return weights.mode == weight_mode::nvfp4 ? 4 : weights.mode == weight_mode::mxfp4 ? 6 : none;
  }

  /// Calls visit(kernel, shared bytes) for each; all rows of a code have one order.
  template <class Visit>
  static constexpr void for_each_kernel(const Visit& visit) {
    for (const auto& of_code : any_rows()) {
      for (const streamed_kernel& of : of_code) visit(of.run, of.shared_bytes);
      visit(of_code[0].order, 0);
    }
    for (const streamed_kernel& of : dense_rows()) {
      visit(of.run, of.shared_bytes);
      visit(of.order, 0);
      if (of.order_many != nullptr) visit(of.order_many, 0);
    }
    visit(&list_tiles, 0);
  }

 public:
  static auto entries() {
    constexpr std::size_t count = [] {
      std::size_t kernels = 0;
      for_each_kernel([&](auto, int) { ++kernels; });
      return kernels;
    }();
    std::array<prim::cuda::kernel_entry, count> listed;
    auto* to = listed.data();
    for_each_kernel(
        [&](auto kernel, int shared_bytes) { *to++ = cuda::entry_of(kernel, shared_bytes); });
    return listed;
  }

  /// Whether codes have kernels.
  static bool has(const packed_weights& weights) { return number_of(weights) < any_rows().size(); }
  /// The kernel of a call, which has so many rows of x for a matrix.
  static streamed_kernel chosen(const quantized_kernel_args& call, std::int64_t rows) {
    const auto dense = dense_rows();
    const std::size_t number = number_of_dense(call);
    if (number < dense.size()) return dense[number];
    return any_rows()[number_of(call.weights)][rows <= 16 ? 0 : rows <= 64 ? 1 : 2];
  }
};

}  // namespace tessera::kernels::quantized::sm90
