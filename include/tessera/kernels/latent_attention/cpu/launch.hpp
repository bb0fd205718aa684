// Entry points of the kernels of latent attention on the CPU.
#pragma once

#include <cstddef>

#include <tessera/families/latent_attention/config.hpp>
#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/cpu_row.hpp>
#include <tessera/kernels/latent_attention/cpu/absorbed_forward.hpp>
#include <tessera/kernels/latent_attention/cpu/expanded_backward.hpp>
#include <tessera/kernels/latent_attention/cpu/expanded_forward.hpp>
#include <tessera/kernels/latent_attention/cpu/traits.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::latent_attention::cpu {

/// The launch of a row's form and direction.
template <class Kernel>
auto launch_of(const latent_attention_kernel_args& args) {
  if constexpr (Kernel::config.form == latent_form::absorbed) {
    return absorbed_forward<Kernel>(args);
  } else if constexpr (Kernel::config.pass == latent_pass::backward) {
    return expanded_backward<Kernel>(args);
  } else {
    return expanded_forward<Kernel>(args);
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
