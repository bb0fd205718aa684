// The kernels of a row of elements of 8 bits, and how a product is launched.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include <tessera/families/grouped_matmul/config.hpp>
#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/families/grouped_matmul/rules.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/grouped_matmul/sm80/launch.hpp>
#include <tessera/kernels/grouped_matmul/sm90/any_codes.hpp>
#include <tessera/kernels/grouped_matmul/sm90/panel_launch.hpp>
#include <tessera/kernels/grouped_matmul/sm90/scaled_product.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>

namespace tessera::kernels::grouped_matmul::sm90 {

/// All kernels of a row, with an epilogue of the header path.
template <class Kernel, class Epilogue = no_epilogue>
struct scaled_kernels {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  static constexpr grouped_matmul_config config = resolved(Kernel::config);
  using element = element_t<config.type>;
  using shape = tile_shape<config.block_n, 232>;
  using product = void (*)(scaled_launch, Epilogue);

  static constexpr int shared_bytes = static_cast<int>(sizeof(typename shape::shared_memory));

  using any_product = void (*)(product_args, operand_scales, product_scales, int, Epilogue);

  /// The kernels for operands: a row of f8_e5m2 multiplies f8_e4m3 by it or it by f8_e4m3 too.
  template <class Lhs, class Rhs>
  struct of_operands {
    static constexpr bool is_e5m2 = std::is_same_v<element, f8_e5m2>;
    using multiplied = std::conditional_t<is_e5m2, prim::cuda::float8_pair<Lhs, Rhs>, element>;

    static product with_scales(product_scales scales) {
      if (scales == product_scales::blocks) {
        return &multiply_scaled<multiplied, shape, product_scales::blocks, Epilogue>;
      }
      return &multiply_scaled<multiplied, shape, product_scales::rows, Epilogue>;
    }
    static any_product of_any() { return &multiply_any_codes<Lhs, Rhs, Epilogue>; }
    static auto entries() {
      return std::array{cuda::entry_of(with_scales(product_scales::blocks), shared_bytes),
                        cuda::entry_of(with_scales(product_scales::rows), shared_bytes),
                        cuda::entry_of(of_any()), cuda::entry_of(&sm80::place_groups)};
    }
  };
  /// What may stand beside an operand of the row's type.
  using other = std::conditional_t<std::is_same_v<element, f8_e5m2>, f8_e4m3, element>;

  static product with_scales(product_scales scales, dtype lhs, dtype rhs) {
    if (lhs != config.type) return of_operands<other, element>::with_scales(scales);
    return rhs == config.type ? of_operands<element, element>::with_scales(scales)
                              : of_operands<element, other>::with_scales(scales);
  }
  static any_product of_any(dtype lhs, dtype rhs) {
    if (lhs != config.type) return of_operands<other, element>::of_any();
    return rhs == config.type ? of_operands<element, element>::of_any()
                              : of_operands<element, other>::of_any();
  }

  static auto entries() {
    const auto own = of_operands<element, element>::entries();
    if constexpr (std::is_same_v<element, other>) {
      return own;
    } else {
      const std::array others{of_operands<element, other>::entries(),
                              of_operands<other, element>::entries()};
      std::array<prim::cuda::kernel_entry, 3 * own.size()> all{};
      auto end = std::copy(own.begin(), own.end(), all.begin());
      for (const auto& of_pair : others) end = std::copy(of_pair.begin(), of_pair.end(), end);
      return all;
    }
  }
};

/// Products of a call's lhs and rhs.
template <class Kernel, class Epilogue = no_epilogue>
class scaled_products {
  using kernels_of = scaled_kernels<Kernel, Epilogue>;
  using shape = typename kernels_of::shape;

 public:
  using epilogue_type = Epilogue;

  scaled_products(const grouped_matmul_kernel_args& args, int multiprocessors,
                  const Epilogue& of_row)
      : epilogue(of_row),
        tile_rows(rows_of_cluster<shape>(
            args.group_sizes != nullptr && args.groups > 1 ? args.m / args.groups : args.m)),
        multiprocessors_(multiprocessors),
        how_(args.scales),
        scales_{static_cast<const float*>(args.lhs_scale.data),
                args.lhs_scale.row,
                args.lhs_scale.group,
                static_cast<const float*>(args.rhs_scale.data),
                args.rhs_scale.row,
                args.rhs_scale.group} {}

  Epilogue epilogue;
  /// Rows that the table of groups is cut into.
  int tile_rows;

  static auto entries() { return kernels_of::entries(); }
  cudaError_t multiply(const product_args& args, cudaStream_t stream) const {
    scaled_launch launch{.all = {.product = args, .a = {}, .b = {}, .to = {}}, .scales = scales_};
    if (args.tiles(tile_rows, shape::columns) == 0) return cudaSuccess;
    if (!are_boxed(args)) return multiply_any(args, stream);
    launch.all.product.depth = args.depth / 2;
    if (args.depth > 0 &&
        !(make_map(launch.all.a, args.a, args.rows, args, shape::rows) &&
          make_map(launch.all.b, args.b, args.columns, args, shape::columns / 2))) {
      return multiply_any(args, stream);
    }
    launch.all.in_boxes =
        shape::result_panels > 0 && make_result_map(launch.all.to, args, dtype::bf16);
    const int blocks = tile_rows / shape::rows;
    const std::int64_t clusters = std::min<std::int64_t>(args.tiles(tile_rows, shape::columns),
                                                         std::max(multiprocessors_ / blocks, 1));
    return prim::cuda::launch_clusters(
        kernels_of::with_scales(how_, args.a.matrix.type, args.b.matrix.type),
        cuda::grid_of(clusters * blocks), blocks, shape::threads, kernels_of::shared_bytes, stream,
        false, launch, epilogue);
  }

 private:
  cudaError_t multiply_any(const product_args& args, cudaStream_t stream) const {
    const std::int64_t blocks = args.tiles(tile_rows, sm80::result_columns);
    return prim::cuda::launch_kernel(kernels_of::of_any(args.a.matrix.type, args.b.matrix.type),
                                     cuda::grid_of(blocks), any_threads, 0, stream, false, args,
                                     scales_, how_, tile_rows, epilogue);
  }

  /// Whether the copy unit addresses both operands, and sums of i8 have room.
  bool are_boxed(const product_args& args) const {
    constexpr std::int64_t most = INT32_MAX / 2;  // positions are numbers of 32 bits
    constexpr std::int64_t most_bytes = 131'071;  // times 2^14 it is below 2^31
    const auto is_boxed = [&](const grouped_matrix& matrix) {
      const auto bits = reinterpret_cast<std::uintptr_t>(matrix.data) |
                        static_cast<std::uintptr_t>(matrix.row | matrix.group | args.depth);
      return bits % 16 == 0 && matrix.row >= 0 && matrix.group >= 0;
    };
    const bool whole = kernels_of::config.type == dtype::i8 && how_ == product_scales::rows;
    if (whole && args.depth > most_bytes) return false;
    return args.rows <= most && args.columns <= most && args.depth <= most &&
           args.matrices <= most && is_boxed(args.a.matrix) && is_boxed(args.b.matrix);
  }

  /// Of an operand with `extent` rows, boxes of so many of them. Elements are taken in pairs.
  static bool make_map(CUtensorMap& map, const sm80::factor& of, std::int64_t extent,
                       const product_args& args, int box) {
    const std::int64_t matrices = of.matrix.group == 0 ? 1 : args.matrices;
    return prim::cuda::make_tensor_map(map, {of.matrix.data,
                                             {args.depth / 2, extent, matrices, 1},
                                             {1, of.matrix.row / 2, of.matrix.group / 2, 0},
                                             {prim::cuda::panel_columns, box, 1, 1}});
  }

  int multiprocessors_;
  product_scales how_;
  operand_scales scales_;
};

}  // namespace tessera::kernels::grouped_matmul::sm90
