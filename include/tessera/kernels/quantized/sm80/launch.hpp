// Entry points of quantised weights for GPUs (sm_80 and everything later): workspace, preparation
// and launch, with the signatures that the table of rows has.
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr.
#pragma once

#include <cstddef>
#include <utility>

#include <cuda_runtime.h>

#include <tessera/families/quantized/config.hpp>
#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/families/quantized/rules.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/quantized/sm80/codes.hpp>
#include <tessera/kernels/quantized/sm80/product.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::quantized::sm80 {

/// What a row does.
template <class Kernel>
struct row_of_config {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  static auto of(const quantized_kernel_args& args, std::byte* workspace, int multiprocessors) {
    constexpr quantized_pass pass = Kernel::config.pass;
    if constexpr (pass == quantized_pass::quantize) {
      return quantize_row(args, workspace);
    } else if constexpr (pass == quantized_pass::dequantize) {
      return dequantize_row(args, workspace);
    } else {
      constexpr bool backward = pass == quantized_pass::backward;
      return product_row<Kernel::config.type, backward>(args, workspace, multiprocessors);
    }
  }
  using type = decltype(of(std::declval<const quantized_kernel_args&>(), nullptr, 0));
};

/// Bytes of device memory that `launch` needs. Reads nothing that `args` points to.
template <class Kernel>
std::size_t workspace_bytes(const quantized_kernel_args& args, int multiprocessors) {
  return row_of_config<Kernel>::of(args, nullptr, multiprocessors).bytes();
}

/// Readies the current device for launches of the row: refuses (status_code::device) a device that
/// the binary holds no code for. The first launch does the same.
template <class Kernel>
status prepare() {
  return cuda::prepare<typename row_of_config<Kernel>::type>();
}

/// Runs the row's kernels on `context.stream` of the current device; returns before the work is
/// done. Can be captured in a graph once the device is ready (see `prepare`).
template <class Kernel>
status launch(const quantized_kernel_args& args, const launch_context& context) {
  using row = row_of_config<Kernel>;
  const std::size_t bytes = workspace_bytes<Kernel>(args, context.threads);
  if (status done = cuda::ready<typename row::type>(context, bytes); !done) return done;
  auto launched = row::of(args, context.workspace, context.threads);
  const auto stream = static_cast<cudaStream_t>(context.stream);
  if constexpr (is_product(Kernel::config.pass)) {
    return launched.launch(stream, starts_early<typename row::type>());
  } else {
    return launched.launch(stream);
  }
}

}  // namespace tessera::kernels::quantized::sm80
