// Launches of latent attention with wgmma (compute capability 9.0, compiled for sm_90a):
// expanded latents, to which the dense kernels of sm90 attend (sm80/dense_forward.hpp), and latents
// in pages.
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr, for sm_90a alone.
#pragma once

#include <cstddef>

#include <tessera/families/latent_attention/config.hpp>
#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/families/latent_attention/rules.hpp>
#include <tessera/kernels/cuda_entry_points.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/latent_attention/sm80/dense_forward.hpp>
#include <tessera/kernels/latent_attention/sm80/dense_selected.hpp>
#include <tessera/kernels/latent_attention/sm90/absorbed_launch.hpp>
#include <tessera/kernels/latent_attention/sm90/dense_kernels.hpp>
#include <tessera/kernels/latent_attention/sm90/indexer_scores.hpp>

namespace tessera::kernels::latent_attention::sm90 {

/// The launch of a row's form.
template <class Kernel>
struct launcher {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  using args_type = latent_attention_kernel_args;

  static auto of(const args_type& args, int multiprocessors, std::byte* workspace) {
    if constexpr (Kernel::config.form == latent_form::absorbed) {
      return absorbed_launch<Kernel>(args, multiprocessors, workspace);
    } else if constexpr (Kernel::config.form == latent_form::selected) {
      return sm80::dense_selected<Kernel, dense_kernels, indexer_kernels<Kernel>>(
          args, multiprocessors, workspace);
    } else {
      return sm80::dense_forward<dense_kernels<Kernel>>(args, multiprocessors, workspace);
    }
  }
};

}  // namespace tessera::kernels::latent_attention::sm90
