// Launches of the kernels of elementwise recurrences on the CPU.
#pragma once

#include <type_traits>

#include <tessera/families/selective_scan/config.hpp>
#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/families/selective_scan/rules.hpp>
#include <tessera/kernels/cpu_entry_points.hpp>
#include <tessera/kernels/cpu_row.hpp>
#include <tessera/kernels/selective_scan/cpu/rwkv4_backward.hpp>
#include <tessera/kernels/selective_scan/cpu/rwkv4_forward.hpp>
#include <tessera/kernels/selective_scan/cpu/state_space_backward.hpp>
#include <tessera/kernels/selective_scan/cpu/state_space_forward.hpp>

namespace tessera::kernels::selective_scan::cpu {

/// The launch of a row's recurrence and direction.
template <class Kernel>
struct launcher {
  static_assert(cpu_row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using args_type = selective_scan_kernel_args;

  static auto of(const args_type& args) {
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
};

}  // namespace tessera::kernels::selective_scan::cpu
