// Launches of grouped matrix products with wgmma (compute capability 9.0, compiled for sm_90a).
// What the copy unit cannot address (rows that are not at multiples of 16 bytes, negative strides,
// no matrices at all) is multiplied by the kernels of sm80.
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr, for sm_90a alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include <tessera/kernels/grouped_matmul/sm80/launch.hpp>
#include <tessera/kernels/grouped_matmul/sm90/panel_launch.hpp>
#include <tessera/kernels/grouped_matmul/sm90/product.hpp>
#include <tessera/kernels/grouped_matmul/sm90/scaled_launch.hpp>
#include <tessera/kernels/grouped_matmul/sm90/transposed_product.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>

namespace tessera::kernels::grouped_matmul::sm90 {

/// All kernels of a row, with an epilogue of the header path.
template <class Kernel, class Epilogue = no_epilogue>
struct row_kernels {
  using of_tiles = sm80::row_kernels<Kernel, Epilogue>;
  static constexpr grouped_matmul_config config = of_tiles::config;
  using element = element_t<config.type>;
  using shape = tile_shape<config.block_n>;
  using product = void (*)(product_launch, Epilogue);
  using transposed = transposed_shape<config.block_n>;
  using transposed_product = void (*)(product_launch);
  static constexpr bool has_transposed = !sm80::is_epilogue<Epilogue>;

  static constexpr int shared_bytes = static_cast<int>(sizeof(typename shape::shared_memory));

  static product of_operands(bool across_a, bool across_b) {
    if (across_a) return &multiply_panels<element, shape, true, true, Epilogue>;
    return across_b ? &multiply_panels<element, shape, false, true, Epilogue>
                    : &multiply_panels<element, shape, false, false, Epilogue>;
  }

  /// Of groups of few rows, by how weights lie.
  static transposed_product of_weights(bool across) {
    return across ? &multiply_transposed<element, transposed, true>
                  : &multiply_transposed<element, transposed, false>;
  }

  static auto entries() {
    const auto of = [](bool a, bool b) { return cuda::entry_of(of_operands(a, b), shared_bytes); };
    const std::array own{of(false, false), of(false, true), of(true, true)};
    const auto others = of_tiles::entries();
    if constexpr (has_transposed) {
      constexpr int bytes = static_cast<int>(sizeof(typename transposed::shared_memory));
      return cuda::joined(own,
                          std::array{cuda::entry_of(of_weights(false), bytes),
                                     cuda::entry_of(of_weights(true), bytes)},
                          others);
    } else {
      return cuda::joined(own, others);
    }
  }
};

/// Products with blocks that stay for the whole launch, alone or in pairs.
template <class Kernel, class Epilogue = no_epilogue>
class panel_products {
  using kernels_of = row_kernels<Kernel, Epilogue>;
  using shape = typename kernels_of::shape;
  using of_tiles = sm80::tile_products<Kernel, Epilogue>;

 public:
  using epilogue_type = Epilogue;

  panel_products(const grouped_matmul_kernel_args& args, int multiprocessors,
                 const Epilogue& of_row)
      : epilogue(of_row), multiprocessors_(multiprocessors), boxed_(are_boxed(args)) {
    const bool cut = args.group_sizes != nullptr && args.groups > 1;
    if (!boxed_) return;
    tile_rows = rows_of_cluster<shape>(cut ? args.m / args.groups : args.m);
    if constexpr (kernels_of::has_transposed) {
      transposed_ = cut && is_transposed(args);
      if (transposed_) tile_rows = kernels_of::transposed::rows;
    }
  }

  Epilogue epilogue;
  /// Rows that the table of groups is cut into.
  int tile_rows = of_tiles::tile_rows;

  static auto entries() { return kernels_of::entries(); }
  cudaError_t multiply(const product_args& args, cudaStream_t stream) const {
    if (!boxed_) return of_tiles{epilogue}.multiply(args, stream);
    const bool by_table = args.table.rows != nullptr && !args.sums_rows;
    if constexpr (kernels_of::has_transposed) {
      if (transposed_ && by_table) {
        return launch_transposed<typename kernels_of::transposed>(
            kernels_of::of_weights(args.b.across), args, blocks_sharing_rows, multiprocessors_,
            stream);
      }
    }
    return launch_panels<shape>(kernels_of::of_operands(args.a.across, args.b.across), args,
                                by_table ? tile_rows : rows_of_cluster<shape>(args.rows),
                                multiprocessors_, stream, epilogue);
  }

 private:
  /// Whether the copy unit addresses all operands.
  static bool are_boxed(const grouped_matmul_kernel_args& args) {
    constexpr std::int64_t most = INT32_MAX / 2;  // positions are numbers of 32 bits
    const auto is_boxed = [](const grouped_matrix& matrix, std::int64_t columns) {
      return columns > 0 && kernels_of::of_tiles::copies(matrix, 0) && matrix.row >= 0 &&
             matrix.group >= 0;
    };
    return args.groups > 0 && args.m <= most && args.n <= most && args.k <= most &&
           args.groups <= most && args.rhs_scale.data == nullptr && is_boxed(args.lhs, args.k) &&
           is_boxed(args.rhs, args.transpose_rhs ? args.k : args.n) &&
           (args.d_out.data == nullptr || is_boxed(args.d_out, args.n));
  }

  static constexpr int blocks_sharing_rows = 2;

  /// Whether rows of groups are the narrow side of products: groups of few rows, whose results
  /// need only be stored, sixteen bytes at a time. From 1024 rows on, on average, of the wide tile
  /// from 512, the last tile of a group costs little either way.
  static bool is_transposed(const grouped_matmul_kernel_args& args) {
    constexpr std::int64_t most_rows = 131072 / kernels_of::transposed::columns;
    const bool forward = args.d_out.data == nullptr;
    const grouped_matrix& to = forward ? args.out : args.d_lhs;
    const bool plain = !forward || (args.rhs_bias.data == nullptr &&
                                    args.out_init.data == nullptr && !args.has_epilogue());
    return plain && to.type == kernels_of::config.type &&
           lies_in_eights(to, forward ? args.n : args.k) && args.m / args.groups <= most_rows;
  }

  int multiprocessors_;
  bool boxed_;
  bool transposed_ = false;
};

/// The launch of a row with an epilogue.
template <class Kernel>
struct launcher {
  using args_type = grouped_matmul_kernel_args;
  template <class Epilogue>
  using products =
      std::conditional_t<is_8_bits(Kernel::config.type), scaled_products<Kernel, Epilogue>,
                         panel_products<Kernel, Epilogue>>;

  template <class Epilogue = no_epilogue>
  static sm80::grouped_launch<Kernel, products<Epilogue>> of(const args_type& args,
                                                             int multiprocessors,
                                                             std::byte* workspace,
                                                             const Epilogue& epilogue = {}) {
    return {args, workspace, {args, multiprocessors, epilogue}};
  }
};

}  // namespace tessera::kernels::grouped_matmul::sm90
