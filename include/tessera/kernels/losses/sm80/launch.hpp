// Launches of fused losses for GPUs (sm_80 and everything later).
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr.
#pragma once

#include <cstddef>

#include <tessera/families/losses/config.hpp>
#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/families/losses/rules.hpp>
#include <tessera/kernels/cuda_entry_points.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/losses/sm80/cross_entropy.hpp>
#include <tessera/kernels/losses/sm80/kl_divergence.hpp>
#include <tessera/kernels/losses/sm80/linear_cross_entropy.hpp>

namespace tessera::kernels::losses::sm80 {

/// The launch of a row's loss and direction.
template <class Kernel>
struct launcher {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using args_type = losses_kernel_args;

  static auto of(const args_type& args, int /*multiprocessors*/, std::byte* workspace) {
    constexpr bool backward = Kernel::config.pass == loss_pass::backward;
    if constexpr (Kernel::config.loss == loss_kind::cross_entropy) {
      return cross_entropy_row<backward>(args, workspace);
    } else if constexpr (Kernel::config.loss == loss_kind::kl_divergence) {
      return kl_divergence_row<backward>(args, workspace);
    } else {
      return linear_cross_entropy_row<Kernel::config.type, backward>(args, workspace);
    }
  }
};

}  // namespace tessera::kernels::losses::sm80
