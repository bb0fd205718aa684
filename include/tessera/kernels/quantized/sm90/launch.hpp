// Launches of products with packed weights on Hopper (compute capability 9.0, compiled for
// sm_90a). Few rows of x, very many, weights with groups of outputs and what the copy unit cannot
// address go the way of sm80, with wgmma where weights are decoded first.
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr, for sm_90a alone.
#pragma once

#include <algorithm>
#include <cstddef>

#include <cuda_runtime.h>

#include <tessera/families/quantized/config.hpp>
#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/families/quantized/rules.hpp>
#include <tessera/kernels/cuda_entry_points.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/grouped_matmul/sm90/launch.hpp>
#include <tessera/kernels/quantized/sm80/any_layout.hpp>
#include <tessera/kernels/quantized/sm80/product.hpp>
#include <tessera/kernels/quantized/sm90/streamed_launch.hpp>
#include <tessera/prim/cuda/launch.hpp>
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
        streamed_(args, workspace, multiprocessors) {}

  static auto entries() {
    return cuda::joined(decoded_first::entries(), streamed_launch<type>::entries());
  }
  std::size_t bytes() const {
    return may_stream() ? std::max(decoded_first_.bytes(), streamed_.bytes())
                        : decoded_first_.bytes();
  }

  /// `dependent`: a kernel may start before the one before it has ended.
  status launch(cudaStream_t stream, bool dependent) {
    const bool exact = is_exact(args_.batch, args_.matrices, is_grouped());
    if (may_stream() && streamed_.served() &&
        (streamed_.is_exact() || !(exact && decoded_first_.takes_few()))) {
      return streamed_.launch(stream, dependent);
    }
    return decoded_first_.launch(stream, dependent);
  }

 private:
  bool is_grouped() const { return args_.group_sizes != nullptr; }
  bool may_stream() const { return !is_decoded(args_.batch, args_.matrices, is_grouped()); }

  const quantized_kernel_args& args_;
  decoded_first decoded_first_;
  streamed_launch<type> streamed_;
};

/// The launch of a row.
template <class Kernel>
struct launcher {
  using args_type = quantized_kernel_args;

  static auto of(const args_type& args, int multiprocessors, std::byte* workspace) {
    return sm80::any_layout<forward_row<Kernel>>(args, false, workspace, multiprocessors);
  }
};

}  // namespace tessera::kernels::quantized::sm90
