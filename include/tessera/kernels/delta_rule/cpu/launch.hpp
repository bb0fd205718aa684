// Launches of the delta rule kernels on the CPU.
#pragma once

#include <cstddef>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/cpu_entry_points.hpp>
#include <tessera/kernels/delta_rule/cpu/backward.hpp>
#include <tessera/kernels/delta_rule/cpu/forward.hpp>
#include <tessera/kernels/delta_rule/cpu/traits.hpp>

namespace tessera::kernels::delta_rule::cpu {

/// A launch of a row's direction.
template <class Kernel>
struct launcher {
  using args_type = delta_rule_kernel_args;
  static constexpr bool forward = traits<Kernel>::config.pass == delta_rule_pass::forward;

  static launcher of(const args_type& call) { return {call}; }

  std::size_t workspace_bytes(int threads) const {
    if constexpr (forward) {
      return static_cast<std::size_t>(threads) *
             static_cast<std::size_t>(forward_launch<Kernel>(args, threads).floats_of_thread()) *
             sizeof(float);
    } else {
      return backward_launch<Kernel>(args, threads).bytes();
    }
  }
  void run(std::byte* workspace, int threads) const {
    if constexpr (forward) {
      forward_launch<Kernel>(args, threads).run(reinterpret_cast<float*>(workspace));
    } else {
      backward_launch<Kernel>(args, threads).run(workspace);
    }
  }

  const args_type& args;
};

}  // namespace tessera::kernels::delta_rule::cpu
