// Launches of products with packed weights on Hopper (compute capability 9.0, compiled for
// sm_90a). Few rows of x, very many, weights with groups of outputs and what the copy unit cannot
// address go the way of sm80, with wgmma where weights are decoded first.
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr, for sm_90a alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/quantized/config.hpp>
#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/families/quantized/rules.hpp>
#include <tessera/kernels/cuda_entry_points.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/grouped_matmul/sm90/launch.hpp>
#include <tessera/kernels/quantized/sm80/product.hpp>
#include <tessera/kernels/quantized/sm90/decoded_product.hpp>
#include <tessera/kernels/quantized/sm90/streamed_launch.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/prim/cuda/tensor_map.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::quantized::sm90 {

/// Products of decoded weights by wgmma.
template <dtype Type>
struct panel_factors {
  struct row {
    static constexpr grouped_matmul_config config{.target = backend::cuda_sm90, .type = Type};
  };
  using launcher = grouped_matmul::sm90::launcher<row>;
  static auto entries() { return grouped_matmul::sm90::row_kernels<row>::entries(); }
  static std::size_t bytes(const grouped_matmul_kernel_args& product, int multiprocessors) {
    return cuda::workspace_bytes<launcher>(product, multiprocessors);
  }
  static status launch(const grouped_matmul_kernel_args& product, const launch_context& context) {
    return cuda::launch<launcher>(product, context);
  }
};

/// Products of weights that are decoded on their way.
template <dtype Type>
class decoded_products {
  using element = element_t<Type>;
  using kernel = void (*)(decoded_launch);

  static kernel kernel_of(int bits, bool tall) {
    if (bits == 8)
      return tall ? &multiply_decoded<element, 8, 2> : &multiply_decoded<element, 8, 1>;
    return tall ? &multiply_decoded<element, 4, 2> : &multiply_decoded<element, 4, 1>;
  }
  static constexpr int shared_bytes(bool tall) {
    return static_cast<int>(tall ? sizeof(decoded_shape<2>::shared_memory)
                                 : sizeof(decoded_shape<1>::shared_memory));
  }

 public:
  static auto entries() {
    std::array<prim::cuda::kernel_entry, 4> all;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool tall = i % 2 != 0;
      all[i] = cuda::entry_of(kernel_of(i / 2 != 0 ? 8 : 4, tall), shared_bytes(tall));
    }
    return all;
  }

  decoded_products(const quantized_kernel_args& args, int multiprocessors)
      : multiprocessors_(multiprocessors), bits_(args.weights.bits) {
    const packed_weights& weights = args.weights;
    const auto address = reinterpret_cast<std::uintptr_t>(weights.codes.data) |
                         static_cast<std::uintptr_t>(weights.codes.row * 4);
    constexpr std::int64_t most = INT32_MAX / 2;  // positions are numbers of 32 bits
    served_ = !args.transposed && args.group_sizes == nullptr && args.batch > 0 &&
              weights.rows > 0 && weights.columns() > 0 && (bits_ == 4 || bits_ == 8) &&
              args.x.type == Type && weights.columns() % 32 == 0 && weights.group_size >= 16 &&
              address % 16 == 0 && args.batch <= most && weights.rows <= most &&
              weights.columns() <= most;
    if (!served_) return;
    all_.weights = weights;
    product_args& product = all_.product;
    product.to.data = args.out.data;
    product.to.type = args.out.type;
    product.to.row = args.out.row;
    product.rows = args.batch;
    product.columns = weights.rows;
    product.depth = weights.columns();
    // Tall tiles read weights less often; others leave fewer multiprocessors without work.
    using tall = decoded_shape<2>;
    tall_ = product.tiles(tall::rows, tall::columns) * 4 >= std::int64_t{multiprocessors} * 3;
    const int rows = tall_ ? tall::rows : decoded_shape<1>::rows;
    served_ = prim::cuda::make_tensor_map(all_.x, {args.x.data,
                                                   {product.depth, args.batch, 1, 1},
                                                   {1, args.x.row, 0, 0},
                                                   {prim::cuda::panel_columns, rows, 1, 1}});
  }
  bool served() const { return served_; }

  status launch(cudaStream_t stream) const {
    const int rows = tall_ ? decoded_shape<2>::rows : decoded_shape<1>::rows;
    const std::int64_t blocks = std::min<std::int64_t>(
        all_.product.tiles(rows, decoded_shape<1>::columns), multiprocessors_);
    return cuda::launched(prim::cuda::launch_kernel(kernel_of(bits_, tall_), cuda::grid_of(blocks),
                                                    decoded_shape<1>::threads, shared_bytes(tall_),
                                                    stream, false, all_));
  }

 private:
  decoded_launch all_{};
  int multiprocessors_;
  int bits_;
  bool tall_ = false;
  bool served_ = false;
};

/// From so many rows of x on, weights are decoded once, for products that bring both operands by
/// copies.
inline constexpr std::int64_t many_rows = 1536;

/// So many rows of x take as long by mma.sync, whose weights are not rounded.
inline constexpr std::int64_t few_rows = 8;
/// From so many on, weights that are decoded once are as fast.
inline constexpr std::int64_t most_streamed_rows = 4096;

/// The kernels of a row, and the launch of a call.
template <class Kernel>
class forward_row {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  static constexpr dtype type = Kernel::config.type;
  using decoded_first = sm80::product_row<type, false, panel_factors<type>>;

 public:
  forward_row(const quantized_kernel_args& args, std::byte* workspace, int multiprocessors)
      : args_(args),
        decoded_first_(args, workspace, multiprocessors),
        streamed_(args, workspace, multiprocessors),
        multiprocessors_(multiprocessors) {}

  static auto entries() {
    return sm80::joined(sm80::joined(decoded_first::entries(), decoded_products<type>::entries()),
                        streamed_launch<type>::entries());
  }
  std::size_t bytes() const {
    return streams() ? std::max(decoded_first_.bytes(), streamed_.bytes()) : decoded_first_.bytes();
  }

  status launch(cudaStream_t stream) {
    if (streams() && streamed_.served()) {
      return streamed_.launch(stream, cuda::starts_early<forward_row>());
    }
    if (args_.batch > thin_rows && args_.batch < many_rows) {
      const decoded_products<type> products(args_, multiprocessors_);
      if (products.served()) return products.launch(stream);
    }
    return decoded_first_.launch(stream, cuda::starts_early<forward_row>());
  }

 private:
  /// Of groups rows are counted as if they were spread evenly.
  bool streams() const {
    const std::int64_t matrices = std::max<std::int64_t>(args_.matrices, 1);
    return args_.batch > few_rows * matrices && args_.batch < most_streamed_rows * matrices;
  }

  const quantized_kernel_args& args_;
  decoded_first decoded_first_;
  streamed_launch<type> streamed_;
  int multiprocessors_;
};

/// The launch of a row.
template <class Kernel>
struct launcher {
  using args_type = quantized_kernel_args;

  static forward_row<Kernel> of(const args_type& args, int multiprocessors, std::byte* workspace) {
    return {args, workspace, multiprocessors};
  }
};

}  // namespace tessera::kernels::quantized::sm90
