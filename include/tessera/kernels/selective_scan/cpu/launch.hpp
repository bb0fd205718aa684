// Entry points of the kernels of elementwise recurrences on the CPU.
#pragma once

#include <cstddef>
#include <type_traits>

#include <tessera/families/selective_scan/config.hpp>
#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/families/selective_scan/rules.hpp>
#include <tessera/kernels/cpu_row.hpp>
#include <tessera/kernels/selective_scan/cpu/rwkv4_backward.hpp>
#include <tessera/kernels/selective_scan/cpu/rwkv4_forward.hpp>
#include <tessera/kernels/selective_scan/cpu/state_space_backward.hpp>
#include <tessera/kernels/selective_scan/cpu/state_space_forward.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::selective_scan::cpu {

/// The launch of a row's recurrence and direction.
template <class Kernel>
auto launch_of(const selective_scan_kernel_args& args) {
  static_assert(cpu_row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  constexpr bool backward = Kernel::config.pass == scan_pass::backward;
  if constexpr (Kernel::config.recurrence == scan_recurrence::rwkv4) {
    using kernel = std::conditional_t<backward, rwkv4_backward<Kernel>, rwkv4_forward<Kernel>>;
    return kernel(args.rwkv4);
  } else {
    using kernel =
        std::conditional_t<backward, state_space_backward<Kernel>, state_space_forward<Kernel>>;
    return kernel(args.state_space);
  }
}

/// Bytes of scratch memory for `launch`. Reads no memory that `args` points to.
template <class Kernel>
std::size_t workspace_bytes(const selective_scan_kernel_args& args, int threads) {
  return launch_of<Kernel>(args).workspace_bytes(threads);
}

/// Runs the row's kernel. `args` come from `lower`.
template <class Kernel>
status launch(const selective_scan_kernel_args& args, const launch_context& context) {
  return run_in_workspace(launch_of<Kernel>(args), context);
}

}  // namespace tessera::kernels::selective_scan::cpu
