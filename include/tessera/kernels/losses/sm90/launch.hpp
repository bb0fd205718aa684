// Launches of linear cross entropy with wgmma (compute capability 9.0, compiled for sm_90a).
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr, for sm_90a alone.
#pragma once

#include <cstddef>

#include <tessera/families/losses/config.hpp>
#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/families/losses/rules.hpp>
#include <tessera/kernels/cuda_entry_points.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/losses/sm90/linear_cross_entropy.hpp>

namespace tessera::kernels::losses::sm90 {

/// The launch of a row's direction.
template <class Kernel>
struct launcher {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using args_type = losses_kernel_args;

  static auto of(const args_type& args, int multiprocessors, std::byte* workspace) {
    constexpr bool backward = Kernel::config.pass == loss_pass::backward;
    return linear_cross_entropy_row<Kernel::config.type, backward>(args, multiprocessors,
                                                                   workspace);
  }
};

}  // namespace tessera::kernels::losses::sm90
