// Entry points of the kernels of latent attention on the CPU.
#pragma once

#include <cstddef>
#include <type_traits>

#include <tessera/families/latent_attention/config.hpp>
#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/cpu_row.hpp>
#include <tessera/kernels/latent_attention/cpu/absorbed_forward.hpp>
#include <tessera/kernels/latent_attention/cpu/expanded_backward.hpp>
#include <tessera/kernels/latent_attention/cpu/expanded_forward.hpp>
#include <tessera/kernels/latent_attention/cpu/selected.hpp>
#include <tessera/kernels/latent_attention/cpu/traits.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::latent_attention::cpu {

/// The launch of a row's form and direction.
template <class Kernel>
auto launch_of(const latent_attention_kernel_args& args) {
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

/// Bytes of scratch memory for `launch`. Reads no memory that `args` points to.
template <class Kernel>
std::size_t workspace_bytes(const latent_attention_kernel_args& args, int threads) {
  return launch_of<Kernel>(args).workspace_bytes(threads);
}

/// Runs the row's kernel. `args` come from `lower`.
template <class Kernel>
status launch(const latent_attention_kernel_args& args, const launch_context& context) {
  return run_in_workspace(launch_of<Kernel>(args), context);
}

}  // namespace tessera::kernels::latent_attention::cpu
