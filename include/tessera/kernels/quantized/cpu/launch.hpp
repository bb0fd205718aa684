// Entry points of the kernels of quantised weights on the CPU.
#pragma once

#include <cstddef>
#include <type_traits>

#include <tessera/families/quantized/config.hpp>
#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/families/quantized/rules.hpp>
#include <tessera/kernels/cpu_row.hpp>
#include <tessera/kernels/quantized/cpu/backward.hpp>
#include <tessera/kernels/quantized/cpu/dequantize.hpp>
#include <tessera/kernels/quantized/cpu/forward.hpp>
#include <tessera/kernels/quantized/cpu/quantize.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::quantized::cpu {

/// The launch of a row's pass.
template <class Kernel>
auto launch_of(const quantized_kernel_args& args) {
  static_assert(cpu_row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  if constexpr (Kernel::config.pass == quantized_pass::quantize) {
    return quantize<Kernel>(args);
  } else if constexpr (Kernel::config.pass == quantized_pass::dequantize) {
    return dequantize<Kernel>(args);
  } else if constexpr (Kernel::config.pass == quantized_pass::forward) {
    return forward<Kernel>(args);
  } else {
    return backward<Kernel>(args);
  }
}

/// Bytes of scratch memory for `launch`. Reads no memory that `args` points to.
template <class Kernel>
std::size_t workspace_bytes(const quantized_kernel_args& args, int threads) {
  return launch_of<Kernel>(args).workspace_bytes(threads);
}

/// Runs the row's kernel. `args` come from `lower`.
template <class Kernel>
status launch(const quantized_kernel_args& args, const launch_context& context) {
  return run_in_workspace(launch_of<Kernel>(args), context);
}

}  // namespace tessera::kernels::quantized::cpu
