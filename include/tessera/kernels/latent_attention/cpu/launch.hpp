// Launches of the kernels of latent attention on the CPU.
#pragma once

#include <type_traits>

#include <tessera/families/latent_attention/config.hpp>
#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/cpu_entry_points.hpp>
#include <tessera/kernels/cpu_row.hpp>
#include <tessera/kernels/latent_attention/cpu/absorbed_forward.hpp>
#include <tessera/kernels/latent_attention/cpu/expanded_backward.hpp>
#include <tessera/kernels/latent_attention/cpu/expanded_forward.hpp>
#include <tessera/kernels/latent_attention/cpu/selected.hpp>
#include <tessera/kernels/latent_attention/cpu/traits.hpp>

namespace tessera::kernels::latent_attention::cpu {

/// The launch of a row's form and direction.
template <class Kernel>
struct launcher {
  using args_type = latent_attention_kernel_args;

  static auto of(const args_type& args) {
    constexpr latent_attention_config config = Kernel::config;
    using expanded = std::conditional_t<config.pass == latent_pass::backward,
                                        expanded_backward<Kernel>, expanded_forward<Kernel>>;
    if constexpr (config.form == latent_form::absorbed) {
      return absorbed_forward<Kernel>(args);
    } else if constexpr (config.form == latent_form::selected) {
      return selected<Kernel, expanded>(args);
    } else {
      return expanded(args);
    }
  }
};

}  // namespace tessera::kernels::latent_attention::cpu
