// Launches of quantised weights for GPUs (sm_80 and everything later).
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr.
#pragma once

#include <cstddef>

#include <tessera/families/quantized/config.hpp>
#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/families/quantized/rules.hpp>
#include <tessera/kernels/cuda_entry_points.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/quantized/sm80/any_layout.hpp>
#include <tessera/kernels/quantized/sm80/codes.hpp>
#include <tessera/kernels/quantized/sm80/product.hpp>

namespace tessera::kernels::quantized::sm80 {

/// The launch of what a row does.
template <class Kernel>
struct launcher {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using args_type = quantized_kernel_args;

  static auto of(const args_type& args, int multiprocessors, std::byte* workspace) {
    constexpr quantized_pass pass = Kernel::config.pass;
    if constexpr (pass == quantized_pass::quantize) {
      return any_layout<quantize_row>(args, true, workspace);
    } else if constexpr (pass == quantized_pass::dequantize) {
      return any_layout<dequantize_row>(args, false, workspace);
    } else {
      constexpr bool backward = pass == quantized_pass::backward;
      return any_layout<product_row<Kernel::config.type, backward>>(args, false, workspace,
                                                                    multiprocessors);
    }
  }
};

}  // namespace tessera::kernels::quantized::sm80
