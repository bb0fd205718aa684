// Launches of the kernels of fused losses on the CPU.
#pragma once

#include <type_traits>

#include <tessera/families/losses/config.hpp>
#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/families/losses/rules.hpp>
#include <tessera/kernels/cpu_entry_points.hpp>
#include <tessera/kernels/cpu_row.hpp>
#include <tessera/kernels/losses/cpu/cross_entropy.hpp>
#include <tessera/kernels/losses/cpu/kl_divergence.hpp>
#include <tessera/kernels/losses/cpu/linear_cross_entropy.hpp>
#include <tessera/kernels/losses/cpu/linear_cross_entropy_backward.hpp>

namespace tessera::kernels::losses::cpu {

/// The launch of a row's loss and direction.
template <class Kernel>
struct launcher {
  static_assert(cpu_row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using args_type = losses_kernel_args;

  static auto of(const args_type& args) {
    constexpr bool backward = Kernel::config.pass == loss_pass::backward;
    if constexpr (Kernel::config.loss == loss_kind::kl_divergence) {
      using kernel = std::conditional_t<backward, kl_divergence_backward<Kernel>,
                                        kl_divergence_forward<Kernel>>;
      return kernel(args.kl_divergence);
    } else if constexpr (Kernel::config.loss == loss_kind::linear_cross_entropy) {
      using kernel = std::conditional_t<backward, linear_cross_entropy_backward<Kernel>,
                                        linear_cross_entropy_forward<Kernel>>;
      return kernel(args.linear_cross_entropy);
    } else {
      using kernel = std::conditional_t<backward, cross_entropy_backward<Kernel>,
                                        cross_entropy_forward<Kernel>>;
      return kernel(args.cross_entropy);
    }
  }
};

}  // namespace tessera::kernels::losses::cpu
