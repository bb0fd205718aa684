// Launches of elementwise recurrences for GPUs (sm_80 and everything later).
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr.
#pragma once

#include <cstddef>

#include <tessera/families/selective_scan/config.hpp>
#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/families/selective_scan/rules.hpp>
#include <tessera/kernels/cuda_entry_points.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/selective_scan/sm80/rwkv4.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space.hpp>

namespace tessera::kernels::selective_scan::sm80 {

/// The launch of a row's recurrence and direction.
template <class Kernel>
struct launcher {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using args_type = selective_scan_kernel_args;

  static auto of(const args_type& args, int /*multiprocessors*/, std::byte* workspace) {
    constexpr scan_recurrence recurrence = Kernel::config.recurrence;
    constexpr bool backward = Kernel::config.pass == scan_pass::backward;
    if constexpr (recurrence == scan_recurrence::rwkv4) {
      return rwkv4_row<backward>(args.rwkv4, workspace);
    } else {
      constexpr bool shares_steps = recurrence == scan_recurrence::state_space_v2;
      return state_space_row<shares_steps, backward>(args.state_space, workspace);
    }
  }
};

}  // namespace tessera::kernels::selective_scan::sm80
